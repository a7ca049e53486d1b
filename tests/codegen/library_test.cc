// SPDX-License-Identifier: Apache-2.0
// Shared libraries: what they export, that they need nothing, that they compute what the code in
// memory does.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>

#include "codegen/harness.h"

namespace relaxvm::codegen::testing {
namespace {

namespace fs = std::filesystem;
using tir::Indices;
using tir::Tensor;

tir::PrimFunc Double() {
  ir::Var n("n", Int(64));
  Tensor x("x", {n}, Float(32));
  return tir::CreatePrimFunc({x}, {tir::Map(x, [](ir::Expr v) { return v + v; }, "y")});
}

class LibraryTest : public ::testing::Test {
 protected:
  LibraryTest()
      : folder_(fs::temp_directory_path() / ("relaxvm_library_test_" + std::to_string(getpid()))) {
    fs::create_directories(folder_);
  }
  ~LibraryTest() override { fs::remove_all(folder_); }

  std::string Output(const std::string& command) {
    std::string text;
    FILE* pipe = popen(command.c_str(), "r");
    char buffer[4096];
    while (size_t size = fread(buffer, 1, sizeof(buffer), pipe)) text.append(buffer, size);
    pclose(pipe);
    return text;
  }
  std::set<std::string> Symbols(const std::string& options, const std::string& path) {
    std::istringstream lines(Output("nm -D " + options + " " + path));
    std::set<std::string> names;
    for (std::string line; std::getline(lines, line);)
      names.insert(line.substr(line.rfind(' ') + 1));
    return names;
  }
  // A folder with one program, as the only entry of PATH while `body` runs.
  template <typename Body>
  void WithOnly(const std::string& program, Body body) {
    fs::path bin = folder_ / "bin";
    fs::create_directories(bin);
    std::string before = getenv("PATH");
    if (!program.empty()) {  // a script: a compiler looks for its own parts along PATH
      std::ofstream(bin / program)
          << "#!/bin/sh\nPATH='" << before << "' exec '" << Which(program) << "' \"$@\"\n";
      fs::permissions(bin / program, fs::perms::owner_all);
    }
    setenv("PATH", bin.c_str(), 1);
    try {
      body();
    } catch (...) {
      setenv("PATH", before.c_str(), 1);
      throw;
    }
    setenv("PATH", before.c_str(), 1);
  }
  std::string Which(const std::string& program) {
    std::string path = Output("command -v " + program);
    return path.substr(0, path.find('\n'));
  }
  size_t FilesLeft() {
    return static_cast<size_t>(
        std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }

  fs::path folder_;
};

TEST_F(LibraryTest, ExportsItsKernelsAndNothingElseAndNeedsNothing) {
  std::string path = folder_ / "m.so";
  LinkLibrary(BuildKernels(ModuleOf({{"double", Double()}}), {}), {"blob"}, path);
  EXPECT_EQ(Symbols("--defined-only", path),
            (std::set<std::string>{"__relaxvm_kernel_context", "__relaxvm_kernel_table",
                                   "__relaxvm_kernel_work", "__TVMFFIErrorSetRaisedFromCStr",
                                   "__tvm_ffi__library_bin", "__tvm_ffi_double"}));
  // Weak: absent in a process without tvm-ffi.
  EXPECT_EQ(Symbols("--undefined-only", path),
            std::set<std::string>{"TVMFFIErrorSetRaisedFromCStr"});
  EXPECT_EQ(Output("readelf -d " + path + " | grep NEEDED"), "");
  EXPECT_EQ(FilesLeft(), 1u);
}

TEST_F(LibraryTest, ComputesWhatTheCodeInMemoryComputes) {
  KernelSet set = BuildKernels(ModuleOf({{"double", Double()}}), {});
  std::string path = folder_ / "m.so";
  std::string blob(70000, 'x');
  LinkLibrary(set, {blob}, path);
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << dlerror();
  auto* table = static_cast<const RelaxvmKernelTable*>(dlsym(library, kKernelTableSymbol));
  ASSERT_EQ(table->num_kernels, 1);
  EXPECT_STREQ(table->kernels[0].name, "double");
  std::vector<float> x(100, 1.25f), y(100), z(100);
  Host host;
  LoadedKernels loaded = LoadInMemory(set);
  for (auto [kernels, out] : {std::pair{table, &y}, std::pair{loaded.table, &z}}) {
    View vx(x.data(), {100}, Float(32)), vy(out->data(), {100}, Float(32));
    const DLTensor* tensors[] = {&vx.tensor, &vy.tensor};
    EXPECT_EQ(kernels->kernels[0].direct(&host.context, tensors, nullptr), 0);
  }
  EXPECT_EQ(y, z);
  EXPECT_EQ(y[99], 2.5f);
  const char* data = static_cast<const char*>(dlsym(library, "__tvm_ffi__library_bin"));
  EXPECT_EQ(std::memcmp(data, blob.data(), blob.size()), 0);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % 4096, 0u);
  dlclose(library);
}

// tvm-ffi's own loader, in a process that has neither of our libraries.
TEST_F(LibraryTest, RunsInAnyProgramThatHasTvmFfi) {
  std::string path = folder_ / "m.so";
  LinkLibrary(BuildKernels(ModuleOf({{"double", Double()}}), {}), {}, path);
  std::string script = folder_ / "client.py";
  std::ofstream(script) << R"(
import sys
import numpy as np
import tvm_ffi
module = tvm_ffi.load_module(sys.argv[1])
x, y = np.arange(10, dtype="float32"), np.zeros(10, "float32")
module["double"](x, y)
assert y.tolist() == [2.0 * i for i in range(10)], y
try:
    module["double"](x, y[:5])
except ValueError as error:
    assert "double: parameter y: dimension 0 must be n" in str(error), error
else:
    raise SystemExit("no error")
assert not any("librelaxvm" in line for line in open("/proc/self/maps")), "our library is loaded"
print("fine")
)";
  if (Output("python3 -c 'import tvm_ffi, numpy' 2>&1") != "")
    GTEST_SKIP() << "python3 has no tvm_ffi and numpy";
  EXPECT_EQ(Output("python3 " + script + " " + path + " 2>&1"), "fine\n");
}

class LinkersTest : public LibraryTest, public ::testing::WithParamInterface<const char*> {};

TEST_P(LinkersTest, LinksWithEachLinker) {
  if (Which(GetParam()).empty()) GTEST_SKIP() << GetParam() << " is not installed";
  std::string path = folder_ / "m.so";
  KernelSet set = BuildKernels(ModuleOf({{"double", Double()}}), {});
  const std::string head = "pieces of ", body(70000, 'x'), all = head + body;
  WithOnly(GetParam(), [&] { LinkLibrary(set, {head, body}, path); });
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << dlerror();
  EXPECT_NE(dlsym(library, "__tvm_ffi_double"), nullptr);
  const void* bytes = dlsym(library, "__tvm_ffi__library_bin");
  ASSERT_NE(bytes, nullptr);
  EXPECT_EQ(std::memcmp(bytes, all.data(), all.size()), 0);
  Dl_info info;
  ASSERT_NE(dladdr(bytes, &info), 0);
  EXPECT_STREQ(info.dli_sname, "__tvm_ffi__library_bin");
  dlclose(library);
}
INSTANTIATE_TEST_SUITE_P(All, LinkersTest, ::testing::Values("ld.lld", "ld", "cc"));

TEST_F(LibraryTest, SaysThatThereIsNoLinkerAndLeavesNothing) {
  KernelSet set = BuildKernels(ModuleOf({{"double", Double()}}), {});
  std::string path = folder_ / "m.so";
  try {
    WithOnly("", [&] { LinkLibrary(set, {}, path); });
    FAIL() << "linked";
  } catch (const ffi::Error& error) {
    EXPECT_NE(std::string(error.message()).find("no linker was found; install ld.lld, ld or cc"),
              std::string::npos);
  }
  EXPECT_EQ(FilesLeft(), 1u);  // the folder for PATH
}

TEST_F(LibraryTest, SaysWhyThePathCannotBeWritten) {
  KernelSet set = BuildKernels(ModuleOf({{"double", Double()}}), {});
  try {
    LinkLibrary(set, {}, (folder_ / "absent" / "m.so").string());
    FAIL() << "linked";
  } catch (const ffi::Error& error) {
    EXPECT_NE(std::string(error.message()).find("cannot write"), std::string::npos);
    EXPECT_NE(std::string(error.message()).find("there is no folder"), std::string::npos);
  }
  EXPECT_THROW(LinkLibrary(set, {}, folder_.string()), ffi::Error);
  EXPECT_EQ(FilesLeft(), 0u);
}

}  // namespace
}  // namespace relaxvm::codegen::testing
