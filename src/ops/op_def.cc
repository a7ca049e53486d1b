// SPDX-License-Identifier: Apache-2.0
// What type rules and compute rules see of a call, with the errors that they share.
#include "ops/op_def.h"

#include <algorithm>
#include <sstream>

#include "ir/prim.h"

namespace relaxvm::ops {
namespace {

std::optional<Dims> DimsOf(const Type& type) {
  if (const auto* t = type.as<ir::TensorTypeObj>()) {
    if (auto dims = t->GetShape()) return *dims;
  } else if (const auto* s = type.as<ir::ShapeTypeObj>()) {
    if (s->values.has_value()) return s->values.value();
  }
  return std::nullopt;
}

}  // namespace

const std::string& TypeCtx::Name() const { return def_.name; }

std::string TypeCtx::ArgName(size_t i) const {
  if (i < def_.args.size()) return def_.args[i].name;
  return "argument " + std::to_string(i + 1);
}

std::string TypeCtx::Describe(size_t i) const { return ArgName(i) + ": " + DescribeType(type(i)); }

Type TypeCtx::type(size_t i) const {
  Type ty = arg(i)->ty;
  RELAXVM_CHECK(!ty.IsMissing()) << Name() << ": " << ArgName(i) << " has no type yet";
  return ty;
}

TensorType TypeCtx::Tensor(size_t i) const {
  if (auto t = type(i).as<TensorType>()) return *t;
  if (type(i).as<ir::AnyTypeObj>() != nullptr) return TensorType(Void(), -1);
  Error(ErrorKind::kTypeError, ArgName(i), " must be a tensor, got ", DescribeType(type(i)));
}

TensorType TypeCtx::TensorOf(size_t i, bool (*accepts)(DLDataType), const char* what) const {
  TensorType t = Tensor(i);
  if (!t->IsUnknownDtype() && !accepts(t->dtype)) {
    Error(ErrorKind::kTypeError, ArgName(i), " must be ", what, ", got ", DescribeType(t));
  }
  return t;
}

TensorType TypeCtx::Float(size_t i) const {
  return TensorOf(i, IsFloat, "a floating-point tensor");
}

std::vector<TensorType> TypeCtx::TensorTuple(size_t i) const {
  const auto* tuple = type(i).as<ir::TupleTypeObj>();
  if (tuple == nullptr) {
    Error(ErrorKind::kTypeError, ArgName(i), " must be a tuple of tensors, got ",
          DescribeType(type(i)));
  }
  std::vector<TensorType> tensors;
  for (size_t n = 0; n < tuple->fields.size(); ++n) {
    auto t = tuple->fields[n].as<TensorType>();
    if (!t) {
      Error(ErrorKind::kTypeError, ArgName(i), "[", n, "] must be a tensor, got ",
            DescribeType(tuple->fields[n]));
    }
    tensors.push_back(*t);
  }
  return tensors;
}

std::optional<Dims> TypeCtx::Shape(size_t i) const {
  Type ty = type(i);
  if (ty.as<ir::TensorTypeObj>() == nullptr && ty.as<ir::ShapeTypeObj>() == nullptr) {
    Error(ErrorKind::kTypeError, ArgName(i), " must be a shape, got ", DescribeType(ty));
  }
  return DimsOf(ty);
}

int64_t TypeCtx::Rank(size_t i) const {
  if (auto dims = Shape(i)) return static_cast<int64_t>(dims->size());
  if (const auto* t = type(i).as<ir::TensorTypeObj>()) return t->ndim;
  return type(i).as<ir::ShapeTypeObj>()->ndim;
}

DLDataType TypeCtx::Prim(size_t i) const {
  if (const auto* p = type(i).as<ir::PrimTypeObj>()) return p->dtype;
  Error(ErrorKind::kTypeError, ArgName(i), " must be a scalar, got ", DescribeType(type(i)));
}

int64_t TypeCtx::Axis(int64_t axis, int64_t ndim) const {
  if (ndim < 0) {
    Error(ErrorKind::kValueError, "an axis needs a tensor of known rank; state it with match_cast");
  }
  if (axis < -ndim || axis >= ndim) {
    if (ndim == 0) Error(ErrorKind::kValueError, "axis ", axis, " of a tensor without dimensions");
    Error(ErrorKind::kValueError, "axis ", axis, " is out of range for a tensor with ", ndim,
          ndim == 1 ? " dimension" : " dimensions", "; use ", -ndim, " to ", ndim - 1);
  }
  return axis < 0 ? axis + ndim : axis;
}

Ints TypeCtx::Axes(const Ints& axes, int64_t ndim) const {
  Ints result;
  for (int64_t axis : axes) {
    int64_t a = Axis(axis, ndim);
    if (std::find(result.begin(), result.end(), a) != result.end()) {
      Error(ErrorKind::kValueError, "axis ", axis, " is given twice");
    }
    result.push_back(a);
  }
  return result;
}

void TypeCtx::SameDtype(size_t i, size_t j) const {
  DLDataType a = Tensor(i)->dtype;
  DLDataType b = Tensor(j)->dtype;
  if (IsVoid(a) || IsVoid(b) || a == b) return;
  Error(ErrorKind::kTypeError, ArgName(i), " and ", ArgName(j), " must have one dtype, got ",
        DTypeName(a), " and ", DTypeName(b), "; convert one of them with astype");
}

void TypeCtx::CheckRank(size_t i, int64_t ndim) const {
  int64_t rank = Rank(i);
  if (rank < 0 || rank == ndim) return;
  Error(ErrorKind::kValueError, ArgName(i), " must have ", ndim,
        ndim == 1 ? " dimension" : " dimensions", ", got ", DescribeType(type(i)));
}

std::optional<Dims> TypeCtx::Broadcast(const Dims& a, const Dims& b) const {
  size_t ndim = std::max(a.size(), b.size());
  std::vector<Expr> dims(ndim);
  bool decided = true;
  for (size_t k = 1; k <= ndim; ++k) {  // from the last dimension
    Expr& out = dims[ndim - k];
    if (k > a.size()) {
      out = b[b.size() - k];
    } else if (k > b.size()) {
      out = a[a.size() - k];
    } else {
      const Expr& x = a[a.size() - k];
      const Expr& y = b[b.size() - k];
      if (ir::IsIntValue(x, 1)) {
        out = y;
      } else if (ir::IsIntValue(y, 1) || Equal(x, y)) {
        out = x;
      } else if (ir::AsInt(x).has_value() && ir::AsInt(y).has_value()) {
        Error(ErrorKind::kValueError, "shapes ", DescribeDims(a), " and ", DescribeDims(b),
              " do not broadcast: ", DescribeExpr(x), " against ", DescribeExpr(y));
      } else {
        decided = false;
      }
    }
  }
  if (!decided) return std::nullopt;
  return Dims(dims.begin(), dims.end());
}

TensorType TypeCtx::Result(const std::optional<Dims>& dims, int64_t ndim, DLDataType dtype) const {
  ffi::Optional<ir::VDevice> vdevice;
  size_t from = 0;
  auto see = [&](size_t i, const ir::TensorTypeObj* t) {
    if (t == nullptr || !t->vdevice.has_value()) return;
    if (!vdevice.has_value()) {
      vdevice = t->vdevice;
      from = i;
    } else if (!vdevice.value().same_as(t->vdevice.value()) &&
               !ir::StructuralEqual(vdevice.value(), t->vdevice.value())) {
      Error(ErrorKind::kValueError, ArgName(from), " and ", ArgName(i),
            " lie on different devices; move one of them with to_vdevice");
    }
  };
  for (size_t i = 0; i < size(); ++i) {
    see(i, arg(i)->ty.as<ir::TensorTypeObj>());
    const auto* tuple = arg(i)->ty.as<ir::TupleTypeObj>();
    for (size_t k = 0; tuple != nullptr && k < tuple->fields.size(); ++k) {
      see(i, tuple->fields[k].as<ir::TensorTypeObj>());
    }
  }
  if (dims) return TensorType(*dims, dtype, vdevice);
  return TensorType(dtype, ndim, vdevice);
}

TensorType TypeCtx::Result(Dims dims, DLDataType dtype) const {
  return Result(std::optional<Dims>(std::move(dims)), -1, dtype);
}

TensorType TypeCtx::OfShape(size_t i, DLDataType dtype) const {
  TensorType result = Result(Shape(i), Rank(i), dtype);
  // A variable stays the shape: what is known of its values is known of the variable.  One that
  // only a dataflow block sees does so only where nothing else is known.
  const bool local = arg(i).as<ir::DataflowVarObj>() != nullptr && result->GetShape().has_value();
  if (arg(i).as<ir::VarObj>() == nullptr || type(i).as<ir::ShapeTypeObj>() == nullptr || local) {
    return result;
  }
  return TensorType(arg(i), dtype, result->vdevice);
}

TensorType TypeCtx::Like(const TensorType& x, DLDataType dtype) const {
  if (x->shape.has_value()) {
    TensorType result = Result(std::nullopt, x->ndim, dtype);
    return TensorType(x->shape.value(), dtype, result->vdevice);
  }
  return Result(std::nullopt, x->ndim, dtype);
}

Dims ComputeArgs::Shape(size_t i) const {
  std::optional<Dims> dims = DimsOf(call->args[i]->ty);
  RELAXVM_CHECK(dims.has_value()) << "argument " << i << " has no known shape";
  return *dims;
}

Expr ComputeArgs::Prim(size_t i) const {
  RELAXVM_CHECK(ir::IsPrim(call->args[i])) << "argument " << i << " is no scalar";
  return call->args[i];
}

TensorType ComputeArgs::OutType(size_t i) const {
  Type type = out;
  if (const auto* tuple = out.as<ir::TupleTypeObj>()) type = tuple->fields[i];
  auto tensor = type.as<TensorType>();
  RELAXVM_CHECK(tensor.has_value()) << "result " << i << " is no tensor";
  return *tensor;
}

Dims ComputeArgs::OutShape(size_t i) const {
  auto dims = OutType(i)->GetShape();
  RELAXVM_CHECK(dims.has_value()) << "result " << i << " has no known shape";
  return *dims;
}

}  // namespace relaxvm::ops
