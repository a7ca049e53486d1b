// SPDX-License-Identifier: Apache-2.0
// A kernel library by hand, as code generation writes it: see src/target/kernel_abi.h.
#include <stddef.h>
#include <stdint.h>

typedef struct {
  int32_t device_type, device_id;
} DLDevice;
typedef struct {
  uint8_t code, bits;
  uint16_t lanes;
} DLDataType;
typedef struct {
  void* data;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t *shape, *strides;
  uint64_t byte_offset;
} DLTensor;

typedef struct Context Context;
typedef int (*Task)(const Context*, void*, int64_t, int64_t);
struct Context {
  int32_t abi_version, num_threads;
  int (*parallel)(const Context*, Task, void*, int64_t, int64_t);
  void* (*alloc_workspace)(const Context*, uint64_t);
  void (*free_workspace)(const Context*, void*);
  void (*set_error)(const Context*, const char*, const char*);
  void* stream;
  const volatile int32_t* interrupt;
  void* host;
  int (*parallel_steps)(const Context*, Task, void*, int64_t, int64_t, int64_t);
};

typedef struct {
  int32_t type_index;
  uint32_t padding;
  union {
    int64_t v_int64;
    double v_float64;
    char* v_obj;
  };
} Any;

const Context* __relaxvm_kernel_context = NULL;

static float* Floats(const DLTensor* t) { return (float*)((char*)t->data + t->byte_offset); }

// add_scalar(x, out, n: int, value: float): out = x + n + value, elementwise, in parallel
struct AddClosure {
  const float* x;
  float* out;
  float value;
};
static int AddTask(const Context* ctx, void* closure, int64_t begin, int64_t end) {
  struct AddClosure* c = closure;
  for (int64_t i = begin; i < end; ++i) c->out[i] = c->x[i] + c->value;
  return 0;
}
static int AddScalar(const Context* ctx, const DLTensor* const* tensors, const int64_t* scalars) {
  const DLTensor *x = tensors[0], *out = tensors[1];
  if (x->ndim != 1 || out->ndim != 1) {
    ctx->set_error(ctx, "ValueError", "x must have 1 dimension");
    return -1;
  }
  if (x->shape[0] != out->shape[0]) {
    ctx->set_error(ctx, "ValueError", "x and out differ in dimension 0");
    return -1;
  }
  union {
    int64_t bits;
    double number;
  } value = {scalars[1]};
  struct AddClosure closure = {Floats(x), Floats(out), (float)(scalars[0] + value.number)};
  return ctx->parallel(ctx, AddTask, &closure, x->shape[0], x->shape[0]);
}

// fill_index(out, n: int, m: int): out[i, j] = i * m + j, through a workspace
static int FillIndex(const Context* ctx, const DLTensor* const* tensors, const int64_t* scalars) {
  int64_t n = scalars[0], m = scalars[1];
  float* scratch = ctx->alloc_workspace(ctx, n * m * sizeof(float));
  if (scratch == NULL) {
    ctx->set_error(ctx, "RuntimeError", "out of memory");
    return -1;
  }
  for (int64_t i = 0; i < n * m; ++i) scratch[i] = (float)i;
  float* out = Floats(tensors[0]);
  for (int64_t i = 0; i < n * m; ++i) out[i] = scratch[i];
  ctx->free_workspace(ctx, scratch);
  return 0;
}

static const DLTensor* TensorArg(const Any* arg) { return (const DLTensor*)(arg->v_obj + 24); }

int __tvm_ffi_add_scalar(void* self, const Any* args, int32_t num_args, Any* result) {
  const DLTensor* tensors[2] = {TensorArg(&args[0]), TensorArg(&args[1])};
  int64_t scalars[2] = {args[2].v_int64, args[3].v_int64};
  return AddScalar(__relaxvm_kernel_context, tensors, scalars);
}
int __tvm_ffi_fill_index(void* self, const Any* args, int32_t num_args, Any* result) {
  const DLTensor* tensors[1] = {TensorArg(&args[0])};
  int64_t scalars[2] = {args[1].v_int64, args[2].v_int64};
  return FillIndex(__relaxvm_kernel_context, tensors, scalars);
}

// A compiled Relax function: r[1] = r[0], taken over (num_args = 1).
int __tvm_ffi___vmtir__identity(void* self, const Any* args, int32_t num_args, Any* result) {
  Any* regs = (Any*)args[1].v_obj;
  regs[1] = regs[0];
  regs[0].type_index = 0;
  regs[0].v_int64 = 0;
  return 0;
}

typedef struct {
  const char *name, *params;
  int (*direct)(const Context*, const DLTensor* const*, const int64_t*);
  int (*packed)(void*, const Any*, int32_t, Any*);
} Entry;
static const Entry kEntries[] = {
    {"add_scalar", "ttif", AddScalar, __tvm_ffi_add_scalar},
    {"fill_index", "tii", FillIndex, __tvm_ffi_fill_index},
};
#ifndef ABI_VERSION
#define ABI_VERSION 3
#endif
#ifndef CPU_FEATURES
#define CPU_FEATURES ""
#endif
const struct {
  int32_t abi_version, num_kernels;
  const Entry* kernels;
  const char *target, *cpu, *cpu_features;
} __relaxvm_kernel_table = {ABI_VERSION, 2, kEntries, "x86_64", "generic", CPU_FEATURES};

#ifdef BLOB
#define STRING_(x) #x
#define STRING(x) STRING_(x)
__asm__(
    ".section .rodata\n"
    ".globl __tvm_ffi__library_bin\n"
    ".type __tvm_ffi__library_bin, @object\n"
    "__tvm_ffi__library_bin:\n"
    ".incbin \"" STRING(BLOB) "\"\n"
    ".size __tvm_ffi__library_bin, . - __tvm_ffi__library_bin\n"
    ".previous\n");
#endif
