// SPDX-License-Identifier: Apache-2.0
// Scheduled kernels against the machine's multiply-add peak, measured in the same run, one thread.
// Prints a line per kernel: shape, microseconds (least of all rounds), GFLOP/s, share of the peak.
#include <sys/mman.h>

#include <chrono>
#include <cstdio>
#include <functional>
#include <map>
#include <string>
#include <utility>

#include "../tests/codegen/harness.h"
#include "schedule/cpu/cpu.h"

namespace relaxvm {
namespace {

namespace ffi = tvm::ffi;
using codegen::testing::Host;
using codegen::testing::Kernel;
using codegen::testing::View;
using ir::Expr;
using ir::Var;
using tir::Indices;
using tir::Tensor;

// Memory as the runtime and NumPy give it: large blocks on huge pages where the system grants them.
class Memory {
 public:
  explicit Memory(int64_t count)
      : bytes_((static_cast<size_t>(count) * 4 + kHuge - 1) / kHuge * kHuge) {
    data_ = static_cast<float*>(std::aligned_alloc(kHuge, bytes_));
    madvise(data_, bytes_, MADV_HUGEPAGE);
    std::fill_n(data_, bytes_ / 4, 0.5f);
  }
  Memory(Memory&& other) noexcept
      : bytes_(other.bytes_), data_(std::exchange(other.data_, nullptr)) {}
  ~Memory() { std::free(data_); }
  float* data() const { return data_; }

 private:
  static constexpr size_t kHuge = 2 << 20;
  size_t bytes_;
  float* data_;
};

// Workspaces are kept between calls, as the runtime's pool does.
void* KeptWorkspace(const RelaxvmKernelContext*, uint64_t num_bytes) {
  static std::map<uint64_t, Memory> kept;
  return kept.try_emplace(num_bytes, static_cast<int64_t>(num_bytes / 4)).first->second.data();
}
void KeepWorkspace(const RelaxvmKernelContext*, void*) {}

struct BenchHost : Host {
  explicit BenchHost(int num_threads = 1) : Host(num_threads) {
    context.alloc_workspace = KeptWorkspace;
    context.free_workspace = KeepWorkspace;
  }
};

double LeastSeconds(const std::function<void()>& run) {
  using Clock = std::chrono::steady_clock;
  double least = 1e9, total = 0;
  run();
  for (int i = 0; i < 2000 && (i < 5 || total < 1.0); ++i) {
    auto start = Clock::now();
    run();
    const double took = std::chrono::duration<double>(Clock::now() - start).count();
    least = std::min(least, took);
    total += took;
  }
  return least;
}

// 24 chains of dependent multiply-adds: what the machine can do at most.
double PeakGflops(int64_t lanes) {
  tir::Buffer x("x", {Expr(24 * lanes)}, Float(32)), y("y", {Expr(24 * lanes)}, Float(32));
  tir::Buffer acc("acc", {Expr(24 * lanes)}, Float(32), "local");
  const int64_t steps = 20000;
  Var k("k", Int(64));
  ffi::Array<tir::Stmt> step, seq = {tir::AllocBuffer(acc)}, store;
  for (int64_t i = 0; i < 24; ++i) {
    Var lane("lane", Int(64));
    Expr at = Expr(i * lanes) + lane;
    auto loop = [&](tir::Stmt body) {
      return tir::For(lane, 0, lanes, tir::ForKind::kVectorized, body);
    };
    seq.push_back(loop(tir::BufferStore(acc, x.Load({at}), {at})));
    step.push_back(loop(tir::BufferStore(
        acc, ir::CallIntrin(ir::Intrin::kFma, {acc.Load({at}), acc.Load({at}), acc.Load({at})}),
        {at})));
    store.push_back(loop(tir::BufferStore(y, acc.Load({at}), {at})));
  }
  seq.push_back(tir::For(k, 0, steps, tir::ForKind::kSerial, tir::SeqStmt::Flatten(step)));
  for (const tir::Stmt& s : store) seq.push_back(s);
  Kernel kernel(tir::PrimFunc({x, y}, tir::SeqStmt::Flatten(seq)));
  std::vector<float> a(24 * lanes, 0.5f), b(24 * lanes);
  std::vector<View> views = {View(a.data(), {24 * lanes}, Float(32)),
                             View(b.data(), {24 * lanes}, Float(32))};
  Host host;
  const double seconds = LeastSeconds([&] { kernel.Run(host, views); });
  return 2.0 * 24 * static_cast<double>(lanes * steps) / seconds * 1e-9;
}

void Report(const std::string& name, const tir::PrimFunc& func,
            const std::vector<std::vector<int64_t>>& shapes, double flops, double peak,
            const std::string& filter, const std::string& show) {
  if (name.find(filter) == std::string::npos) return;
  const target::Machine traits = codegen::MachineOf("llvm");
  tir::PrimFunc scheduled = schedule::cpu::Schedule(func, traits);
  if (!show.empty()) {
    std::printf("%s\n", codegen::InspectKernel(codegen::testing::ModuleOf({{"f", scheduled}}), "f",
                                               {}, show == "asm")
                            .c_str());
  }
  Kernel kernel(scheduled);
  std::vector<Memory> memory;
  std::vector<View> views;
  for (const auto& shape : shapes) {
    int64_t count = 1;
    for (int64_t d : shape) count *= d;
    memory.emplace_back(count);
    views.emplace_back(memory.back().data(), shape, Float(32));
  }
  BenchHost host;
  if (kernel.Run(host, views) != 0) {
    std::printf("%-40s %s\n", name.c_str(), host.message.c_str());
    return;
  }
  const double seconds = LeastSeconds([&] { kernel.Run(host, views); });
  const double gflops = flops / seconds * 1e-9;
  std::printf("%-40s %10.1f us %8.1f GFLOP/s %6.1f %%\n", name.c_str(), seconds * 1e6, gflops,
              gflops / peak * 100);
}

tir::PrimFunc Matmul(Expr m, Expr n, Expr k, bool transposed) {
  Tensor a("a", {m, k}, Float(32)),
      b("b", transposed ? ffi::Array<Expr>{n, k} : ffi::Array<Expr>{k, n}, Float(32));
  Tensor c =
      tir::Reduce({m, n}, {k}, tir::SumReducer(Float(32)), [&](const Indices& i, const Indices& r) {
        return a({i[0], r[0]}) * (transposed ? b({i[1], r[0]}) : b({r[0], i[1]}));
      });
  return tir::CreatePrimFunc({a, b}, {c});
}

// The right side in panels of 64 columns, as weights are at run time.
tir::PrimFunc PackedMatmul(Expr m, int64_t n, int64_t k) {
  Tensor a("a", {m, Expr(k)}, Float(32)),
      b("b", {Expr((n + 63) / 64), Expr(k), Expr(64)}, Float(32));
  Tensor c = tir::Reduce(
      {m, Expr(n)}, {Expr(k)}, tir::SumReducer(Float(32)), [&](const Indices& i, const Indices& r) {
        return a({i[0], r[0]}) * b({ir::FloorDiv(i[1], 64), r[0], ir::FloorMod(i[1], 64)});
      });
  return tir::CreatePrimFunc({a, b}, {c});
}

tir::PrimFunc Conv(Expr h, Expr w, int64_t ci, int64_t co, int64_t kernel, int64_t stride,
                   bool depthwise) {
  Tensor x("x", {h, w, Expr(ci)}, Float(32));
  Tensor weight("weight", {Expr(kernel), Expr(kernel), Expr(depthwise ? 1 : ci), Expr(co)},
                Float(32));
  const int64_t pad = kernel / 2;
  Tensor padded =
      pad == 0 ? x
               : tir::Compute(
                     {h + 2 * pad, w + 2 * pad, Expr(ci)},
                     [&](const Indices& i) {
                       Expr inside =
                           ir::And(ir::And(ir::GreaterEqual(i[0], pad), ir::Less(i[0], h + pad)),
                                   ir::And(ir::GreaterEqual(i[1], pad), ir::Less(i[1], w + pad)));
                       return ir::IfThenElse(inside, x({i[0] - pad, i[1] - pad, i[2]}),
                                             ir::ConstFloat(Float(32), 0));
                     },
                     "pad");
  Expr oh = ir::FloorDiv(h - 1, stride) + 1, ow = ir::FloorDiv(w - 1, stride) + 1;
  Tensor y = tir::Reduce(
      {oh, ow, Expr(co)}, {Expr(depthwise ? 1 : ci), Expr(kernel), Expr(kernel)},
      tir::SumReducer(Float(32)), [&](const Indices& i, const Indices& r) {
        Expr channel = depthwise ? i[2] + r[0] : r[0];
        return padded({i[0] * Expr(stride) + r[1], i[1] * Expr(stride) + r[2], channel}) *
               weight({r[1], r[2], r[0], i[2]});
      });
  return tir::CreatePrimFunc({x, weight}, {y});
}

}  // namespace
}  // namespace relaxvm

int main(int argc, char** argv) {
  using namespace relaxvm;
  const std::string filter = argc > 1 ? argv[1] : "", show = argc > 2 ? argv[2] : "";
  const double peak = PeakGflops(16);
  std::printf("peak %.1f GFLOP/s\n", peak);
  for (int64_t n : {256, 512, 1000, 1024, 2048}) {
    for (bool transposed : {false, true}) {
      Report("matmul " + std::to_string(n) + (transposed ? " transposed" : ""),
             Matmul(n, n, n, transposed), {{n, n}, {n, n}, {n, n}}, 2.0 * n * n * n, peak, filter,
             show);
    }
  }
  for (int64_t n : {512, 1024, 2048, 4096}) {
    Report("matmul packed " + std::to_string(n), PackedMatmul(n, n, n),
           {{n, n}, {n / 64, n, 64}, {n, n}}, 2.0 * n * n * n, peak, filter, show);
  }
  for (auto [n, k] : {std::pair<int64_t, int64_t>{384, 384},
                      {1536, 384},
                      {1536, 1536},
                      {1000, 1280},
                      {4096, 4096}}) {
    for (int64_t m : {1, 2, 3, 4, 7, 8, 16, 64}) {
      for (bool symbolic : {false, true}) {
        Report("rows packed m=" + std::to_string(m) + " n=" + std::to_string(n) +
                   " k=" + std::to_string(k) + (symbolic ? " symbolic" : ""),
               PackedMatmul(symbolic ? Expr(Var("m", Int(64))) : Expr(m), n, k),
               {{m, k}, {(n + 63) / 64, k, 64}, {m, n}}, 2.0 * m * n * k, peak, filter, show);
      }
    }
  }
  Report("matmul m=1 1536", Matmul(1, 1536, 1536, false), {{1, 1536}, {1536, 1536}, {1, 1536}},
         2.0 * 1536 * 1536, peak, filter, show);
  Report("matmul symbolic m=50 384x384", Matmul(ir::Var("m", Int(64)), 384, 384, false),
         {{50, 384}, {384, 384}, {50, 384}}, 2.0 * 50 * 384 * 384, peak, filter, show);
  struct Case {
    int64_t h, w, ci, co, k, s;
    bool depthwise;
  };
  for (const Case& c : {Case{56, 56, 64, 64, 3, 1, false},
                        {56, 56, 256, 64, 1, 1, false},
                        {224, 224, 3, 64, 7, 2, false},
                        {80, 80, 96, 24, 3, 1, false},
                        {112, 112, 64, 64, 3, 1, true},
                        {40, 40, 192, 192, 5, 1, true},
                        {24, 80, 240, 240, 5, 1, true}}) {
    for (bool symbolic : {false, true}) {
      const std::string name =
          (c.depthwise ? "depthwise " : "conv ") + std::to_string(c.k) + "x" + std::to_string(c.k) +
          "/" + std::to_string(c.s) + " " + std::to_string(c.ci) + "->" + std::to_string(c.co) +
          " " + std::to_string(c.h) + "x" + std::to_string(c.w) + (symbolic ? " symbolic" : "");
      const int64_t oh = (c.h - 1) / c.s + 1, ow = (c.w - 1) / c.s + 1;
      auto func = symbolic ? Conv(ir::Var("h", Int(64)), ir::Var("w", Int(64)), c.ci, c.co, c.k,
                                  c.s, c.depthwise)
                           : Conv(c.h, c.w, c.ci, c.co, c.k, c.s, c.depthwise);
      Report(name, func,
             {{c.h, c.w, c.ci}, {c.k, c.k, c.depthwise ? 1 : c.ci, c.co}, {oh, ow, c.co}},
             2.0 * oh * ow * c.co * c.k * c.k * (c.depthwise ? 1 : c.ci), peak, filter, show);
    }
  }
}
