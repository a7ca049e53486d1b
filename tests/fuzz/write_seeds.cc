// SPDX-License-Identifier: Apache-2.0
// Writes the sample programs into a folder, as what the fuzzer of executables starts from.
#include <cstdio>
#include <fstream>
#include <string>

#include "../bytecode/programs.h"
#include "bytecode/serialize.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
    return 2;
  }
  int number = 0;
  for (const auto& builder : relaxvm::testing::SamplePrograms()) {
    std::string bytes = relaxvm::bytecode::Serialize(builder.Get()).Join();
    bytes.resize(bytes.size() - 32);  // without the checksum, which no mutation would pass
    std::ofstream(std::string(argv[1]) + "/" + std::to_string(number++), std::ios::binary) << bytes;
  }
  return 0;
}
