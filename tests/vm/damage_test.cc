// SPDX-License-Identifier: Apache-2.0
// Damaged executables whose checksum was made to agree: the verifier and the builtins alone must
// hold.  Run it in a sanitizer build to see that nothing outside of registers, constants and
// tensors is touched.
#include <gtest/gtest.h>
#include <tvm/ffi/function.h>

#include <cstring>
#include <map>
#include <random>

#include "../bytecode/programs.h"
#include "bytecode/serialize.h"
#include "vm/virtual_machine.h"

namespace relaxvm {
namespace {

namespace ffi = tvm::ffi;

constexpr int kMutants = 10000;
constexpr size_t kOwnSectionBytes = 32;

// Flips bits, overwrites words with small and huge numbers, copies sections over each other, cuts.
std::string Mutate(const std::string& original, std::mt19937* rng) {
  std::string bytes =
      original.substr(0, original.size() - kOwnSectionBytes);  // TVM's part alone: no checksum
  auto pick = [&](size_t n) { return static_cast<size_t>((*rng)() % n); };
  size_t count = 1 + pick(3);
  for (size_t i = 0; i < count; ++i) {
    // Mostly behind the header and the names, where more than framing is at stake.
    size_t from = pick(3) == 0 ? 0 : bytes.size() / 3;
    size_t at = from + pick(bytes.size() - from);
    switch (pick(9)) {
      case 0: bytes[at] = static_cast<char>(bytes[at] ^ (1 << pick(8))); break;
      case 1:
      case 2: {
        static const int64_t kWords[] = {0, 1,  2,       3,         4,         5,
                                         7, -1, 1 << 20, INT64_MAX, INT64_MIN, int64_t{1} << 54};
        int64_t word = kWords[pick(12)];
        at = at / 8 * 8 + bytes.size() % 8;  // the code section ends with the file, in whole words
        if (at + 8 <= bytes.size()) std::memcpy(&bytes[at], &word, 8);
        break;
      }
      case 3: {
        size_t length = std::min<size_t>(8 * (1 + pick(6)), bytes.size() - at);
        size_t other = pick(bytes.size() - length + 1);
        bytes.replace(at, length, bytes.substr(other, length));
        break;
      }
      case 4: bytes[at] = static_cast<char>(pick(6)); break;
      case 5:
        if (pick(8) == 0) bytes.resize(at);
        break;
      default: bytes[at] = static_cast<char>(bytes[at] - 1); break;
    }
    if (bytes.empty()) return bytes;
  }
  return bytes;
}

std::string RuleOf(const std::string& message) {
  size_t open = message.find(" is invalid (");
  if (open != std::string::npos)
    return message.substr(open + 13, message.find(')', open) - open - 13);
  return message.find("is damaged") != std::string::npos ? "framing" : "other";
}

TEST(Damage, MutantsAreRefusedOrRunWithoutHarm) {
  std::vector<std::string> originals;
  for (const auto& builder : testing::SamplePrograms())
    originals.push_back(bytecode::Serialize(builder.Get()));
  std::map<std::string, int> outcomes;
  for (int i = 0; i < kMutants; ++i) {
    std::mt19937 rng(static_cast<unsigned>(i));
    std::string bytes = Mutate(originals[static_cast<size_t>(i) % originals.size()], &rng);
    try {
      auto executable =
          ffi::make_object<vm::ExecutableModule>(bytecode::Deserialize(bytes, "mutant"), "mutant");
      auto machine = vm::VirtualMachine::Create(
          executable, {{DLDevice{kDLCPU, 0}, runtime::AllocatorKind::kPooled, int64_t{64} << 20}});
      machine->set_time_limit_ns(50'000'000);
      for (const bytecode::FuncInfo& info : machine->data().func_table) {
        if (info.kind != bytecode::FuncKind::kVMFunc || info.num_args > 4) continue;
        std::vector<ffi::Any> args(static_cast<size_t>(info.num_args), testing::Zeros({2, 3}));
        std::vector<ffi::AnyView> views(args.begin(), args.end());
        ffi::Any result;
        try {
          machine->FindFunction(info.name).value().CallPacked(
              views.data(), static_cast<int32_t>(views.size()), &result);
          outcomes["ran"] += 1;
        } catch (const ffi::Error&) {
          outcomes["failed at run time"] += 1;
        }
      }
    } catch (const ffi::Error& error) {
      outcomes[RuleOf(error.message())] += 1;
    }
  }
  for (const auto& [outcome, count] : outcomes) std::printf("%6d  %s\n", count, outcome.c_str());
  EXPECT_GT(outcomes["ran"] + outcomes["failed at run time"], kMutants / 10);
  for (const char* rule :
       {"framing", "offsets", "encoding", "range", "signature", "register", "constant", "function",
        "argument-kind", "arity", "jump", "fall-through", "builtin"}) {
    EXPECT_GT(outcomes[rule], 0) << rule;
  }
}

}  // namespace
}  // namespace relaxvm
