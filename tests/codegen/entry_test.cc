// SPDX-License-Identifier: Apache-2.0
// The two entries of a kernel: sizes, checks, errors.
#include <tvm/ffi/function.h>

#include <numeric>
#include <sstream>

#include "codegen/harness.h"

namespace relaxvm::codegen::testing {
namespace {

using ir::Expr;
using ir::Var;
using tir::Indices;
using tir::Tensor;

// z[i] = x[i] + y[i] * 2, of symbolic size
tir::PrimFunc AddTwice() {
  Var n("n", Int(64));
  Tensor x("x", {n}, Float(32)), y("y", {n}, Float(32));
  return tir::CreatePrimFunc(
      {x, y}, {tir::Compute({n}, [&](const Indices& i) { return x(i) + y(i) * 2; }, "z")});
}

class SizesTest : public ::testing::TestWithParam<int64_t> {};

TEST_P(SizesTest, ComputesEveryElementOfASymbolicSize) {
  static const Kernel kernel(AddTwice());
  int64_t n = GetParam();
  std::vector<float> x(n + 1), y(n + 1), z(n + 1, -1);
  std::iota(x.begin(), x.end(), 0.5f);
  std::iota(y.begin(), y.end(), 3.0f);
  kernel.Must({View(x.data(), {n}, Float(32)), View(y.data(), {n}, Float(32)),
               View(z.data(), {n}, Float(32))});
  for (int64_t i = 0; i < n; ++i) ASSERT_EQ(z[i], x[i] + y[i] * 2) << i;
  EXPECT_EQ(z[n], -1);
}
INSTANTIATE_TEST_SUITE_P(Sizes, SizesTest, ::testing::Values(0, 1, 15, 16, 17, 1000));

class ErrorsTest : public ::testing::Test {
 protected:
  ErrorsTest() : kernel_(AddTwice()), x_(8), y_(8), z_(8) {}
  View Of(std::vector<float>& v, std::vector<int64_t> shape = {8}, DLDataType t = Float(32)) {
    return View(v.data(), shape, t);
  }

  // Runs with `x` and gives "Kind: message".
  std::string ErrorOf(const View& x, const View& z) {
    Host host;
    EXPECT_EQ(kernel_.Run(host, {x, Of(y_), z}), kKernelError);
    return host.kind + ": " + host.message;
  }

  Kernel kernel_;
  std::vector<float> x_, y_, z_;
};

TEST_F(ErrorsTest, NamesTheExpectedDtype) {
  EXPECT_EQ(ErrorOf(Of(x_, {8}, Float(64)), Of(z_)),
            "TypeError: f: parameter x: expected dtype float32");
}
TEST_F(ErrorsTest, NamesTheExpectedRank) {
  EXPECT_EQ(ErrorOf(Of(x_, {2, 4}), Of(z_)),
            "ValueError: f: parameter x: expected 1 dimensions, shape (n,)");
}
TEST_F(ErrorsTest, NamesTheDimensionThatDiffers) {
  EXPECT_EQ(ErrorOf(Of(x_), Of(z_, {7})),
            "ValueError: f: parameter z: dimension 0 must be n; expected shape (n,)");
}
TEST_F(ErrorsTest, RefusesATensorOfAnotherDevice) {
  View x = Of(x_);
  x.tensor.device.device_type = kDLCUDA;
  EXPECT_EQ(ErrorOf(x, Of(z_)), "ValueError: f: parameter x: expected a tensor on the CPU");
}
TEST_F(ErrorsTest, RefusesStridesWithGaps) {
  View x = Of(x_);
  int64_t stride = 2;
  x.tensor.strides = &stride;
  EXPECT_EQ(ErrorOf(x, Of(z_)),
            "ValueError: f: parameter x: expected a compact tensor (row-major, without gaps)");
}

TEST_F(ErrorsTest, NamesTheFirstOfSeveral) {
  View x = Of(x_, {2, 4});
  x.tensor.device.device_type = kDLCUDA;
  EXPECT_EQ(ErrorOf(x, Of(z_, {7}, Float(64))),
            "ValueError: f: parameter x: expected 1 dimensions, shape (n,)");
}
TEST_F(ErrorsTest, ReadsNoSizesOfATensorThatHasNone) {
  View x = Of(x_, {});
  x.tensor.shape = nullptr;
  EXPECT_EQ(ErrorOf(x, Of(z_)), "ValueError: f: parameter x: expected 1 dimensions, shape (n,)");
}

// One branch for ranks and dtypes, one for sizes and strides; what differs is found out elsewhere.
TEST(Entry, ChecksAllArgumentsWithTwoBranches) {
  Var n("n", Int(64));
  Tensor x("x", {n, Expr(3), n * 2}, Float(32)), y("y", {n, Expr(3), n * 2}, Float(32));
  auto sum = [&](const Indices& i) { return x(i) + y(i); };
  std::string code = InspectKernel(
      ModuleOf({{"f", tir::CreatePrimFunc({x, y}, {tir::Compute(x->shape, sum, "z")})}}), "f",
      KernelOptions(), /*assembly=*/false);
  int calls = 0, branches = 0;
  std::istringstream lines(code.substr(code.find("define")));
  for (std::string line; std::getline(lines, line);) {
    calls += line.find("@__relaxvm_report(") != std::string::npos && line[0] == ' ';
    branches += line.find("label %bad") != std::string::npos;
  }
  EXPECT_EQ(calls, 2);
  EXPECT_EQ(branches, 2);
}

TEST(Entry, TakesAnyStrideOfADimensionOfSizeOne) {
  Var n("n", Int(64));
  Tensor x("x", {n, Expr(1), Expr(2)}, Float(32));
  auto twice = [&](const Indices& i) { return x(i) * 2; };
  Kernel kernel(tir::CreatePrimFunc({x}, {tir::Compute(x->shape, twice, "y")}));
  std::vector<float> a{1, 2, 3, 4}, c(4);
  std::vector<int64_t> strides{2, 77, 1}, one{99, 77, 1}, gaps{3, 77, 1};
  View whole(a.data(), {2, 1, 2}, Float(32)), row(a.data(), {1, 1, 2}, Float(32));
  whole.tensor.strides = strides.data();
  row.tensor.strides = one.data();
  kernel.Must({whole, View(c.data(), {2, 1, 2}, Float(32))});
  EXPECT_EQ(c, (std::vector<float>{2, 4, 6, 8}));
  kernel.Must({row, View(c.data(), {1, 1, 2}, Float(32))});
  whole.tensor.strides = gaps.data();
  Host host;
  EXPECT_EQ(kernel.Run(host, {whole, View(c.data(), {2, 1, 2}, Float(32))}), kKernelError);
}

// Known sizes are compared four at once, two at once and alone.
TEST(Entry, RefusesAnyOtherSizeOrStrideAmongKnownOnes) {
  const std::vector<int64_t> shape{2, 3, 4, 2, 3, 2, 5};
  ffi::Array<Expr> sizes;
  for (int64_t size : shape) sizes.push_back(Expr(size));
  Tensor x("x", sizes, Float(32));
  Kernel kernel(tir::CreatePrimFunc(
      {x}, {tir::Compute(sizes, [&](const Indices& i) { return x(i) * 2; }, "y")}));
  std::vector<int64_t> strides(shape.size(), 1);
  for (size_t d = shape.size() - 1; d-- > 0;) strides[d] = strides[d + 1] * shape[d + 1];
  std::vector<float> a(2 * strides[0], 3), b(2 * strides[0]);
  View out(b.data(), shape, Float(32));
  auto error_of = [&](const std::vector<int64_t>& has, std::vector<int64_t> steps) {
    View view(a.data(), has, Float(32));
    view.tensor.strides = steps.data();
    Host host;
    return kernel.Run(host, {view, out}) == 0 ? "" : host.message;
  };
  EXPECT_EQ(error_of(shape, strides), "");
  EXPECT_EQ(b[0], 6);
  for (size_t d = 0; d < shape.size(); ++d) {
    std::vector<int64_t> other = shape, gaps = strides;
    other[d] += int64_t{1} << 40;
    ++gaps[d];
    EXPECT_NE(error_of(other, strides).find("dimension " + std::to_string(d) + " must be"),
              std::string::npos);
    EXPECT_NE(error_of(shape, gaps).find("expected a compact tensor"), std::string::npos) << d;
  }
}

TEST(Entry, TakesAnyStrideOfAnEmptyTensor) {
  Var n("n", Int(64));
  Tensor x("x", {Expr(3), n}, Float(32));
  Kernel kernel(tir::CreatePrimFunc(
      {x}, {tir::Compute(x->shape, [&](const Indices& i) { return x(i) * 2; }, "y")}));
  std::vector<int64_t> strides{77, 5};
  float none = 7;
  View empty(&none, {3, 0}, Float(32)), out(&none, {3, 0}, Float(32));
  empty.tensor.strides = strides.data();
  kernel.Must({empty, out});
  EXPECT_EQ(none, 7);
}

TEST(Entry, TakesCompactStridesAndAByteOffset) {
  Kernel kernel(AddTwice());
  std::vector<float> x(6, 1), y(4, 2), z(4);
  x[2] = 40;
  View vx(x.data(), {4}, Float(32));
  int64_t stride = 1;
  vx.tensor.strides = &stride;
  vx.tensor.byte_offset = 8;
  kernel.Must({vx, View(y.data(), {4}, Float(32)), View(z.data(), {4}, Float(32))});
  EXPECT_EQ(z, (std::vector<float>{44, 5, 5, 5}));
}

TEST(Entry, BindsScalarParameters) {
  Var k("k", Int(64)), s("s", Float(64)), n("n", Int(64));
  Tensor x("x", {n}, Float(64));
  Tensor z = tir::Compute({n}, [&](const Indices& i) { return x(i) * s + ir::Cast(Float(64), k); });
  Kernel kernel(tir::CreatePrimFunc({x}, {z}, {k, s}));
  EXPECT_STREQ(kernel.loaded().table->kernels[0].params, "ttif");
  std::vector<double> a{1, 2}, c(2);
  double scale = 2.5;
  int64_t bits;
  std::memcpy(&bits, &scale, 8);
  kernel.Must({View(a.data(), {2}, Float(64)), View(c.data(), {2}, Float(64))}, {10, bits});
  EXPECT_EQ(c, (std::vector<double>{12.5, 15}));
}

TEST(Entry, ChecksADimensionThatIsAnExpression) {
  Var n("n", Int(64));
  Tensor x("x", {n}, Int(32));
  Tensor z =
      tir::Compute({n * 2 + 1}, [&](const Indices& i) { return ir::Cast(Int(32), i[0]); }, "z");
  Kernel kernel(tir::CreatePrimFunc({x}, {z}));
  std::vector<int32_t> a(3), c(7);
  kernel.Must({View(a.data(), {3}, Int(32)), View(c.data(), {7}, Int(32))});
  EXPECT_EQ(c[6], 6);
  Host host;
  EXPECT_EQ(kernel.Run(host, {View(a.data(), {3}, Int(32)), View(c.data(), {6}, Int(32))}),
            kKernelError);
  EXPECT_EQ(host.message,
            "f: parameter z: dimension 0 must be ((n * 2) + 1); expected shape (((n * 2) + 1),)");
}

TEST(Entry, RefusesASizeThatNothingBinds) {
  Var n("n", Int(64));
  Tensor z = tir::Compute({n * 2}, [](const Indices& i) { return i[0]; }, "z");
  tir::PrimFunc func = tir::CreatePrimFunc({}, {z});
  try {
    Kernel kernel(func);
    FAIL() << "compiled";
  } catch (const ffi::Error& error) {
    EXPECT_EQ(error.kind(), "ValueError");
    EXPECT_NE(
        std::string(error.message()).find("the size n in the shape of z is bound by no parameter"),
        std::string::npos);
  }
}

// ---- packed entry ---------------------------------------------------------------------------

ffi::Function PackedOf(const Kernel& kernel) {
  return ffi::Function::FromExternC(
      nullptr, reinterpret_cast<TVMFFISafeCallType>(kernel.loaded().table->kernels[0].packed),
      nullptr);
}

TEST(Packed, RunsWithoutAHost) {
  Kernel kernel(AddTwice());
  std::vector<float> x{1, 2}, y{3, 4}, z(2);
  View vx(x.data(), {2}, Float(32)), vy(y.data(), {2}, Float(32)), vz(z.data(), {2}, Float(32));
  PackedOf(kernel)(&vx.tensor, &vy.tensor, &vz.tensor);
  EXPECT_EQ(z, (std::vector<float>{7, 10}));
}

TEST(Packed, RaisesWhatTheDirectEntryFinds) {
  Kernel kernel(AddTwice());
  std::vector<float> x(2);
  View vx(x.data(), {2}, Float(32)), other(x.data(), {1}, Float(32));
  try {
    PackedOf(kernel)(&vx.tensor, &other.tensor, &vx.tensor);
    FAIL() << "no error";
  } catch (const ffi::Error& error) {
    EXPECT_EQ(error.kind(), "ValueError");
    EXPECT_EQ(error.message(), "f: parameter y: dimension 0 must be n; expected shape (n,)");
  }
}

TEST(Packed, NamesAnArgumentOfTheWrongKind) {
  Kernel kernel(AddTwice());
  std::vector<float> x(2);
  View vx(x.data(), {2}, Float(32));
  try {
    PackedOf(kernel)(&vx.tensor, 3, &vx.tensor);
    FAIL() << "no error";
  } catch (const ffi::Error& error) {
    EXPECT_EQ(error.kind(), "TypeError");
    EXPECT_EQ(error.message(), "f: argument 1 (y): expected a tensor");
  }
  try {
    PackedOf(kernel)(&vx.tensor);
    FAIL() << "no error";
  } catch (const ffi::Error& error) {
    EXPECT_EQ(error.message(), "f: expected 3 arguments");
  }
}

TEST(Kernels, CompilesEqualProgramsOnce) {
  KernelSet set = BuildKernels(ModuleOf({{"a", AddTwice()}, {"b", AddTwice()}}), {});
  EXPECT_EQ(set.objects.size(), 2u);  // one program, one table
  LoadedKernels loaded = LoadInMemory(set);
  ASSERT_EQ(loaded.table->num_kernels, 2);
  EXPECT_EQ(loaded.table->kernels[0].direct, loaded.table->kernels[1].direct);
  EXPECT_NE(loaded.lookup("__tvm_ffi_b"), nullptr);
  EXPECT_EQ(loaded.lookup("__tvm_ffi_c"), nullptr);
}

TEST(Kernels, ManyProgramsCompileOnSeveralThreads) {
  std::vector<std::pair<std::string, tir::PrimFunc>> programs;
  for (int i = 0; i < 24; ++i) {
    Tensor x("x", {Expr(4)}, Int(32));
    programs.emplace_back(
        "f" + std::to_string(i),
        tir::CreatePrimFunc({x}, {tir::Map(x, [i](Expr v) { return v * 100 + i; }, "y")}));
  }
  KernelOptions options;
  options.num_threads = 3;
  int last = 0;
  options.progress = [&](int done, int total) {
    EXPECT_EQ(done, ++last);
    EXPECT_EQ(total, 25);  // and the table
  };
  KernelSet set = BuildKernels(ModuleOf(programs), options);
  EXPECT_EQ(last, 25);
  LoadedKernels loaded = LoadInMemory(set);
  ASSERT_EQ(loaded.table->num_kernels, 24);
  Host host;
  for (int i = 0; i < 24; ++i) {
    EXPECT_EQ(loaded.table->kernels[i].name, "f" + std::to_string(i));
    std::vector<int32_t> x{1, 2, 3, 4}, y(4);
    View vx(x.data(), {4}, Int(32)), vy(y.data(), {4}, Int(32));
    const DLTensor* tensors[] = {&vx.tensor, &vy.tensor};
    EXPECT_EQ(loaded.table->kernels[i].direct(&host.context, tensors, nullptr), 0);
    EXPECT_EQ(y[3], 400 + i);
  }
  KernelOptions alone;
  alone.num_threads = 1;
  KernelSet again = BuildKernels(ModuleOf(programs), alone);
  for (size_t i = 0; i < set.objects.size(); ++i)
    EXPECT_TRUE(set.objects[i].bytes == again.objects[i].bytes) << i;
}

TEST(Kernels, RefusesAnUnknownCpu) {
  EXPECT_THROW(Kernel(AddTwice(), "llvm -mcpu=z80"), ffi::Error);
  EXPECT_THROW(Kernel(AddTwice(), "cuda"), ffi::Error);
}

}  // namespace
}  // namespace relaxvm::codegen::testing
