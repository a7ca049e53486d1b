// SPDX-License-Identifier: Apache-2.0
// The notes of the compiler about a kernel's work, evaluated for arguments.
#include "runtime/kernel_work.h"

#include <gtest/gtest.h>

namespace relaxvm::runtime {
namespace {

struct Tensors {
  int64_t a_shape[2] = {3, 5}, b_shape[1] = {7};
  DLTensor a{nullptr, {kDLCPU, 0}, 2, {kDLFloat, 32, 1}, a_shape, nullptr, 0};
  DLTensor b{nullptr, {kDLCPU, 0}, 1, {kDLFloat, 32, 1}, b_shape, nullptr, 0};
  const DLTensor* all[2] = {&a, &b};
  int64_t scalars[1] = {11};
};

TEST(KernelWork, EvaluatesSizesOfTheArguments) {
  Tensors t;
  struct Case {
    const char* text;
    double value;
  };
  for (const Case& c : std::initializer_list<Case>{{"2 t0.0 * t0.1 *", 30},
                                                   {"n0 t1.0 +", 22},
                                                   {"s0 4 /", 2},
                                                   {"s0 4 %", 3},
                                                   {"n0 s0 min", 11},
                                                   {"n0 s0 max t0.0 -", 12},
                                                   {"5 0 /", 0},
                                                   {"", -1},
                                                   {"t0.2", -1},
                                                   {"n2", -1},
                                                   {"s1", -1}}) {
    auto work = KernelWork::Parse(std::string(c.text) + "|8");
    ASSERT_TRUE(work.has_value()) << c.text;
    EXPECT_EQ(work->Operations(t.all, t.scalars), c.value) << c.text;
    EXPECT_EQ(work->Bytes(t.all, t.scalars), 8);
  }
}

TEST(KernelWork, SaysWhatIsMultiplied) {
  for (auto [text, products] : {std::pair{"n0|8", ""}, {"n0|8|int8", "int8"}, {"|8|", ""}}) {
    auto work = KernelWork::Parse(text);
    ASSERT_TRUE(work.has_value()) << text;
    EXPECT_EQ(work->products(), products) << text;
  }
}

TEST(KernelWork, RefusesWhatIsNoExpression) {
  for (const char* text :
       {"1", "1 2|1", "+|1", "1 +|1", "x|1", "t0|1", "t.1|1", "1  2 +|1", "|t0.", "1|x|int8"})
    EXPECT_FALSE(KernelWork::Parse(text).has_value()) << text;
}

TEST(KernelWork, ReadsTheTableOfALibrary) {
  constexpr char kText[] = "add\tn0|n0 4 *\nbroken\tz|\nmatmul\t|1\n";
  auto table = ParseWorkTable({kText, sizeof(kText)});  // with the 0 that ends it
  EXPECT_EQ(table.size(), 2u);
  EXPECT_TRUE(table.contains("add") && table.contains("matmul"));
}

}  // namespace
}  // namespace relaxvm::runtime
