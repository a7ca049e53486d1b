// SPDX-License-Identifier: Apache-2.0
// Runs any function of a compiled model on files of raw values:
//   run_files MODEL.so FUNCTION OUT [DTYPE:SIZES:FILE | NUMBER]... [-- FUNCTION OUT ...]...
// `float32:1,3,224,224:x.bin` is a tensor, `7` an integer.  Each result is written to OUT0, OUT1,
// ... and described in a line of its own; `--` begins another call.  Needs librelaxvm_runtime and
// libtvm_ffi alone, so that it also serves where models are compiled elsewhere
// (docs/howto/compile_for_another_machine.md).
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/dtype.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "relaxvm/runtime.h"

namespace {

namespace ffi = tvm::ffi;

ffi::Tensor ReadTensor(const std::string& text) {
  std::istringstream words(text);
  std::string dtype, sizes, path;
  std::getline(words, dtype, ':');
  std::getline(words, sizes, ':');
  std::getline(words, path);
  std::vector<int64_t> shape;
  std::istringstream numbers(sizes);
  for (std::string size; std::getline(numbers, size, ',');) shape.push_back(std::stoll(size));
  ffi::Tensor tensor = relaxvm::Empty(shape, ffi::StringToDLDataType(dtype));
  const auto num_bytes = static_cast<std::streamsize>(ffi::GetDataSize(tensor));
  std::ifstream file(path, std::ios::binary);
  if (!file.read(static_cast<char*>(tensor.data_ptr()), num_bytes) || file.peek() != EOF)
    throw std::runtime_error(path + ": does not hold the " + std::to_string(num_bytes) +
                             " bytes of " + dtype + ":" + sizes);
  return tensor;
}

void WriteResults(const ffi::Any& value, const std::string& prefix, int* count) {
  if (auto several = value.try_cast<ffi::Array<ffi::Any>>()) {
    for (const ffi::Any& one : *several) WriteResults(one, prefix, count);
    return;
  }
  auto tensor = value.cast<ffi::Tensor>();
  const std::string path = prefix + std::to_string((*count)++);
  std::ofstream file(path, std::ios::binary);
  file.write(static_cast<const char*>(tensor.data_ptr()),
             static_cast<std::streamsize>(ffi::GetDataSize(tensor)));
  if (!file.flush()) throw std::runtime_error("cannot write " + path);
  std::printf("%s:", std::string(ffi::DLDataTypeToString(tensor.dtype())).c_str());
  for (int i = 0; i < tensor.ndim(); ++i)
    std::printf(i == 0 ? "%lld" : ",%lld", static_cast<long long>(tensor.size(i)));
  std::printf(":%s\n", path.c_str());
}

// One call: words[0] is the function, words[1] the prefix of its results.
void Call(const relaxvm::VirtualMachine& vm, const std::vector<std::string>& words) {
  if (words.size() < 2) throw std::runtime_error("a call needs FUNCTION and OUT");
  std::vector<ffi::Any> inputs;
  for (size_t i = 2; i < words.size(); ++i) {
    if (words[i].find(':') == std::string::npos) {
      inputs.emplace_back(static_cast<int64_t>(std::stoll(words[i])));
    } else {
      inputs.emplace_back(ReadTensor(words[i]));
    }
  }
  std::vector<ffi::AnyView> views(inputs.begin(), inputs.end());
  ffi::Any result;
  vm[words[0]].CallPacked(views.data(), static_cast<int32_t>(views.size()), &result);
  int count = 0;
  WriteResults(result, words[1], &count);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) {
    std::fprintf(stderr,
                 "usage: %s MODEL.so FUNCTION OUT [DTYPE:SIZES:FILE | NUMBER]... "
                 "[-- FUNCTION OUT ...]...\n",
                 argv[0]);
    return 2;
  }
  try {
    relaxvm::VirtualMachine vm(relaxvm::Executable::Load(argv[1]));
    std::vector<std::string> words;
    for (int i = 2; i <= argc; ++i) {
      if (i < argc && std::string(argv[i]) != "--") {
        words.push_back(argv[i]);
        continue;
      }
      Call(vm, words);
      words.clear();
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
