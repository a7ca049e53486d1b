// SPDX-License-Identifier: Apache-2.0
// Kernels as TVM generates them: what they need of their host comes through pointers that the library exports.
#include <stdint.h>
#include <stddef.h>

typedef struct { int32_t type_index, padding; int64_t value; } Any;
typedef struct { void* sync_handle; int32_t num_task; } Group;
typedef int (*Lambda)(int task_id, Group* group, void* closure);

int (*__TVMBackendParallelLaunch)(Lambda, void*, int) = NULL;
void* (*__TVMBackendAllocWorkspace)(int, int, uint64_t, int, int) = NULL;
int (*__TVMBackendFreeWorkspace)(int, int, void*) = NULL;
void (*__TVMFFIErrorSetRaisedFromCStr)(const char*, const char*) = NULL;
#ifdef BARRIER
int (*__TVMBackendParallelBarrier)(int, Group*) = NULL;
#endif

typedef struct { int64_t fails; int64_t tasks; int64_t sum; } Closure;

static int Task(int task_id, Group* group, void* data) {
  Closure* closure = data;
#ifdef BARRIER
  if (__TVMBackendParallelBarrier(task_id, group) != 0) return -1;
#endif
  if (task_id == closure->fails) {
    __TVMFFIErrorSetRaisedFromCStr("ValueError", "the task fails");
    return -1;
  }
  __atomic_add_fetch(&closure->sum, task_id + 1, __ATOMIC_SEQ_CST);
  __atomic_store_n(&closure->tasks, group->num_task, __ATOMIC_SEQ_CST);
  return 0;
}

// (number of tasks, task that fails) -> 1000 * tasks + sum of their numbers
int __tvm_ffi_launch(void* self, const Any* args, int32_t num_args, Any* result) {
  Closure closure = {args[1].value, 0, 0};
  int code = __TVMBackendParallelLaunch(Task, &closure, (int)args[0].value);
  if (code != 0) return code;
  result->type_index = 1;
  result->value = 1000 * closure.tasks + closure.sum;
  return 0;
}

// (device type, bytes) -> 1 when the memory is aligned and can be written
int __tvm_ffi_workspace(void* self, const Any* args, int32_t num_args, Any* result) {
  uint64_t size = (uint64_t)args[1].value;
  char* data = __TVMBackendAllocWorkspace((int)args[0].value, 0, size, 2, 32);
  if (data == NULL) return -1;
  data[0] = data[size - 1] = 1;
  result->type_index = 1;
  result->value = (uintptr_t)data % 64 == 0;
  return __TVMBackendFreeWorkspace(1, 0, data);
}
