// SPDX-License-Identifier: Apache-2.0
// Ten thousand damaged executables, loaded and run in a child with 1 GB of memory: once as they
// are, where the checksum has to find all damage, and once with the right checksum of the damaged
// bytes, or none as in TVM's files, where the verifier and the builtins have to hold.  Run it in a
// sanitizer build to see that nothing outside of registers, constants and tensors is touched.
#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <tvm/ffi/function.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <fstream>
#include <map>
#include <new>
#include <random>

#include "../bytecode/programs.h"
#include "bytecode/serialize.h"
#include "bytecode/verify.h"
#include "support/hash.h"
#include "vm/virtual_machine.h"

#ifndef __has_feature  // clang's way to ask
#define __has_feature(name) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || \
    __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define RELAXVM_SANITIZED 1
#else
#define RELAXVM_SANITIZED 0
#endif

// ---- what loading allocates --------------------------------------------------

namespace {
std::atomic<int64_t> g_now{0}, g_peak{0};
}  // namespace

#if !RELAXVM_SANITIZED
void* operator new(size_t num_bytes) {
  void* data = std::malloc(num_bytes);
  if (data == nullptr) throw std::bad_alloc();
  int64_t now = g_now += static_cast<int64_t>(malloc_usable_size(data));
  if (now > g_peak) g_peak = now;
  return data;
}
void operator delete(void* data) noexcept {
  if (data != nullptr) g_now -= static_cast<int64_t>(malloc_usable_size(data));
  std::free(data);
}
void operator delete(void* data, size_t) noexcept { operator delete(data); }
#endif

namespace relaxvm {
namespace {

namespace ffi = tvm::ffi;

constexpr int kMutants = 10000;
constexpr size_t kOwnSectionBytes = 32;
constexpr rlim_t kChildBytes = rlim_t{1} << 30;
constexpr int kDeadlineSeconds = 10;  // of the processor, for one mutant; its own limit is 50 ms
constexpr int64_t kDeadlineNs = 50'000'000;

// Flips bits, overwrites words with small and huge numbers, copies sections of this and of other
// files over each other, cuts.
std::string Mutate(const std::vector<std::string>& originals, size_t which, std::mt19937* rng) {
  std::string bytes = originals[which];
  auto pick = [&](size_t n) { return static_cast<size_t>((*rng)() % n); };
  size_t count = 1 + pick(3);
  for (size_t i = 0; i < count; ++i) {
    // Mostly behind the header and the names, where more than framing is at stake.
    size_t from = pick(3) == 0 ? 0 : bytes.size() / 3;
    size_t at = from + pick(bytes.size() - from);
    switch (pick(10)) {
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
      case 3:
      case 4: {
        const std::string& source = pick(2) == 0 ? bytes : originals[pick(originals.size())];
        size_t length = std::min({8 * (1 + pick(6)), bytes.size() - at, source.size()});
        bytes.replace(at, length, source.substr(pick(source.size() - length + 1), length));
        break;
      }
      case 5: bytes[at] = static_cast<char>(pick(6)); break;
      case 6:
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
  for (const char* header :
       {"magic", "version", "function table", "function name", "parameter name"}) {
    if (message.find(header) != std::string::npos) return "header";
  }
  return message.find("is damaged") != std::string::npos ? "framing" : "other";
}

std::vector<std::string> Originals() {
  std::vector<std::string> originals;
  for (const auto& builder : testing::SamplePrograms())
    originals.push_back(bytecode::Serialize(builder.Get()).Join());
  return originals;
}

using Outcomes = std::map<std::string, int64_t>;

void RunAll(vm::VirtualMachine* machine, Outcomes* outcomes) {
  machine->set_time_limit_ns(kDeadlineNs);
  for (const bytecode::FuncInfo& info : machine->data().func_table) {
    if (info.kind != bytecode::FuncKind::kVMFunc || info.num_args > 4) continue;
    std::vector<ffi::Any> args(static_cast<size_t>(info.num_args), testing::Zeros({2, 3}));
    std::vector<ffi::AnyView> views(args.begin(), args.end());
    ffi::Any result;
    try {
      machine->FindFunction(info.name).value().CallPacked(
          views.data(), static_cast<int32_t>(views.size()), &result);
      (*outcomes)["ran"] += 1;
    } catch (const ffi::Error&) {
      (*outcomes)["failed at run time"] += 1;
    }
  }
}

// Bytes that malloc gave out, by whatever name: constants are not made with `new`.
int64_t MallocedBytes() {
  struct mallinfo2 info = mallinfo2();
  return static_cast<int64_t>(info.uordblks + info.hblkhd);
}

// Whether loading took more than ten times the file, refused or not.
class AllocationCheck {
 public:
  explicit AllocationCheck(size_t file_bytes)
      // A machine costs some kilobytes whatever it runs.
      : allowed_(10 * static_cast<int64_t>(file_bytes) + (int64_t{32} << 10)) {
    g_peak = g_now.load();
  }
  bool IsExceeded() const {
    return g_peak - now_ > allowed_ ||
           (!RELAXVM_SANITIZED && MallocedBytes() - malloced_ > allowed_);
  }

 private:
  int64_t allowed_;
  int64_t now_ = g_now, malloced_ = MallocedBytes();
};

// TVM's part of a file, with our section behind it as Serialize writes it.
std::string WithChecksum(std::string bytes) {
  auto append = [](std::string* to, auto value) {
    to->append(reinterpret_cast<const char*>(&value), sizeof(value));
  };
  std::string own;
  append(&own, bytecode::kOwnSectionMagic);
  append(&own, uint32_t{1});
  append(&own, uint32_t{0});
  append(&own, static_cast<uint64_t>(bytes.size()));
  append(&own, HashBytes(own, HashBytes(bytes)));
  return bytes + own;
}

// Loads the bytes and runs every function.  Counts what refused them.
void LoadAndRun(const std::string& bytes, Outcomes* outcomes) {
  AllocationCheck allocation(bytes.size());
  try {
    auto executable =
        ffi::make_object<vm::ExecutableModule>(bytecode::Deserialize(bytes, "mutant"), "mutant");
    auto machine = vm::VirtualMachine::Create(
        executable, {{DLDevice{kDLCPU, 0}, runtime::AllocatorKind::kPooled, int64_t{64} << 20}});
    if (allocation.IsExceeded()) (*outcomes)["ALLOCATED TOO MUCH"] += 1;
    (*outcomes)["loaded"] += 1;
    RunAll(machine.get(), outcomes);
  } catch (const ffi::Error& error) {
    if (allocation.IsExceeded()) (*outcomes)["ALLOCATED TOO MUCH"] += 1;
    (*outcomes)[RuleOf(error.message())] += 1;
  }
}

// Ends this process when it has used so much of the processor: a busy machine may take any time.
void SetDeadline() {
  itimerval timer{};
  timer.it_value.tv_sec = kDeadlineSeconds;
  setitimer(ITIMER_PROF, &timer, nullptr);
}

// Runs `work` in a child with little memory; what it counted comes back through a pipe.
template <typename Work>
Outcomes InChild(const Work& work) {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  pid_t child = fork();
  if (child == 0) {
    if (!RELAXVM_SANITIZED) {  // a sanitizer maps terabytes
      rlimit limit{kChildBytes, kChildBytes};
      setrlimit(RLIMIT_AS, &limit);
    }
    Outcomes outcomes;
    work(&outcomes);
    std::string text;
    for (const auto& [name, count] : outcomes) text += std::to_string(count) + " " + name + "\n";
    ssize_t written = write(ends[1], text.data(), text.size());
    _exit(written == static_cast<ssize_t>(text.size()) ? 0 : 3);
  }
  close(ends[1]);
  std::string text;
  char buffer[4096];
  for (ssize_t n; (n = read(ends[0], buffer, sizeof(buffer))) > 0;)
    text.append(buffer, static_cast<size_t>(n));
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0)
      << "the child crashed, ran out of time or memory: status " << status;
  Outcomes outcomes;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    size_t space = line.find(' ');
    outcomes[line.substr(space + 1)] = std::stoll(line.substr(0, space));
  }
  return outcomes;
}

void Print(const Outcomes& outcomes) {
  for (const auto& [outcome, count] : outcomes)
    std::printf("%6lld  %s\n", static_cast<long long>(count), outcome.c_str());
}

TEST(Damage, MutantsThatAChecksumPassesAreRefusedOrRunWithoutHarm) {
  std::vector<std::string> originals = Originals();
  ASSERT_GE(originals.size(), 8u);
  for (std::string& bytes : originals) {
    std::string whole = bytes;
    bytes.resize(bytes.size() - kOwnSectionBytes);
    ASSERT_EQ(WithChecksum(bytes), whole);
  }
  Outcomes outcomes = InChild([&](Outcomes* counts) {
    for (int i = 0; i < kMutants; ++i) {
      std::mt19937 rng(static_cast<unsigned>(i));
      SetDeadline();
      const size_t count = originals.size(), turn = static_cast<size_t>(i) / count;
      std::string bytes = Mutate(originals, static_cast<size_t>(i) % count, &rng);
      LoadAndRun(turn % 2 == 0 ? bytes : WithChecksum(bytes), counts);
    }
  });
  Print(outcomes);
  EXPECT_EQ(outcomes["ALLOCATED TOO MUCH"], 0);
  EXPECT_GT(outcomes["ran"] + outcomes["failed at run time"], kMutants / 10);
  EXPECT_LT(outcomes["header"], kMutants * 2 / 3);
#define RULE(name, text) text,
  for (const char* rule : {"header", "framing", RELAXVM_VERIFY_RULES(RULE)}) {
    EXPECT_GT(outcomes[rule], 0) << rule;
  }
#undef RULE
}

TEST(Damage, ChecksumFindsAllDamage) {
  const std::vector<std::string> originals = Originals();
  Outcomes outcomes = InChild([&](Outcomes* counts) {
    for (int i = 0; i < kMutants; ++i) {
      std::mt19937 rng(static_cast<unsigned>(i));
      SetDeadline();
      size_t which = static_cast<size_t>(i) % originals.size();
      std::string bytes = Mutate(originals, which, &rng);
      // A cut that takes our whole section away leaves a file as TVM writes it.
      bool is_changed =
          bytes != originals[which] && bytes.size() != originals[which].size() - kOwnSectionBytes;
      try {
        bytecode::Deserialize(bytes, "mutant");
        (*counts)[is_changed ? "ACCEPTED" : "unchanged"] += 1;
      } catch (const ffi::Error& error) {
        (*counts)[std::string(error.message()).find("checksum") != std::string::npos
                      ? "checksum"
                      : "before it"] += 1;
      }
    }
  });
  Print(outcomes);
  EXPECT_EQ(outcomes["ACCEPTED"], 0);
  EXPECT_GT(outcomes["checksum"], kMutants / 3);
}

// What the fuzzer found once: tests/fuzz/load_executable/.
TEST(Damage, FoundFilesAreRefusedOrRunWithoutHarm) {
  std::ifstream list("tests/fuzz/load_executable/LIST");
  ASSERT_TRUE(list.good()) << "run it in the root of the sources";
  std::vector<std::string> files;
  for (std::string name; std::getline(list, name);) {
    std::ifstream file("tests/fuzz/load_executable/" + name, std::ios::binary);
    ASSERT_TRUE(file.good()) << name;
    files.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  Outcomes outcomes = InChild([&](Outcomes* counts) {
    for (const std::string& bytes : files) {
      SetDeadline();
      LoadAndRun(bytes, counts);
    }
  });
  EXPECT_FALSE(outcomes.empty());
}

}  // namespace
}  // namespace relaxvm
