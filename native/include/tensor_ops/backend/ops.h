// The methods of the ops. Written by tools/ops_header.py: change native/declaration/ops and run
// that instead of changing this file.
#pragma once

#include "tensor_ops/abi.h"
#include "tensor_ops/backend/array.h"
#include "tensor_ops/backend/call.h"

// clang-format off
namespace tensor_ops::backend {

// The words of the parameter `approximate`.
enum class Approximate { kTanh, kNone };

// The ops as methods of a backend. Outputs come after the inputs, and have the shape of the first
// input; one may be exactly the array that an input of that shape is.
template <class Self>
class Ops {
 public:
  // Residual addition, then root-mean-square normalisation of the last axis.
  //
  //     h = x + residual
  //     y = h * weight / sqrt(mean(h**2) + eps)
  //
  // x: Input.
  // residual: Added to x.
  // weight: Scale of each element of a row. A row.
  // y: The normalised rows.
  // h: The sum.
  // eps: Added to the mean of squares.
  void add_rms_norm(const ConstArray& x, const ConstArray& residual, const ConstArray& weight,
      const Array& y, const Array& h, double eps = 1e-06, CallOptions options = {}) const {
    self().run_op("add_rms_norm", {x.abi(), residual.abi(), weight.abi()}, {y.abi(), h.abi()},
        {eps}, 0, options);
  }

  // Gradients of the residual addition with root-mean-square normalisation.
  //
  //     s = 1 / sqrt(mean(h**2) + eps)
  //     grad_sum = s * (grad * weight - s * h * mean(grad * weight * s * h)) + grad_h
  //     grad_weight = sum over all rows of grad * s * h
  //
  // grad: Gradient with respect to the normalised rows.
  // grad_h: Gradient with respect to the sum h.
  // h: The sum, of grad_h's dtype.
  // weight: Scale of each element of a row. A row.
  // grad_sum: The gradients of either term of the sum.
  // grad_weight: That of the weight.
  // eps: Added to the mean of squares.
  void add_rms_norm_backward(const ConstArray& grad, const ConstArray& grad_h, const ConstArray& h,
      const ConstArray& weight, const Array& grad_sum, const Array& grad_weight, double eps = 1e-06,
      CallOptions options = {}) const {
    self().run_op("add_rms_norm_backward", {grad.abi(), grad_h.abi(), h.abi(), weight.abi()},
        {grad_sum.abi(), grad_weight.abi()}, {eps}, 0, options);
  }

  // Gaussian error linear unit, element by element.
  //
  //     y = 0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x**3)))  ("tanh")
  //     y = 0.5 * x * (1 + erf(x / sqrt(2)))  ("none")
  //
  // x: Input.
  // y: The activations.
  // approximate: Which of the two formulas.
  void gelu(const ConstArray& x, const Array& y, Approximate approximate = Approximate::kTanh,
      CallOptions options = {}) const {
    self().run_op("gelu", {x.abi()}, {y.abi()}, {}, static_cast<int>(approximate), options);
  }

  // Gradient of the Gaussian error linear unit (GELU), element by element.
  //
  //     'none': grad_x = grad * (Phi(x) + x * phi(x)), Phi and phi those of the normal distribution
  //     'tanh': grad_x = grad * s * (1 + x * (c1 + 3 * c3 * x**2) * (1 - s)),
  //     s = 1 / (1 + exp(-x * (c1 + c3 * x**2))), c1 = sqrt(8 / pi), c3 = 0.044715 * c1
  //
  // grad: Gradient with respect to the result.
  // x: Input of the activation.
  // grad_x: The gradients.
  // approximate: The form that was computed.
  void gelu_backward(const ConstArray& grad, const ConstArray& x, const Array& grad_x,
      Approximate approximate = Approximate::kTanh, CallOptions options = {}) const {
    self().run_op("gelu_backward", {grad.abi(), x.abi()}, {grad_x.abi()}, {},
        static_cast<int>(approximate), options);
  }

  // GELU of a gate times a second input (GeGLU), element by element.
  //
  //     y = gelu(gate, approximate) * up
  //
  // gate: Input of the activation.
  // up: Factor.
  // y: The products.
  // approximate: Which of gelu's two formulas.
  void gelu_mul(const ConstArray& gate, const ConstArray& up, const Array& y,
      Approximate approximate = Approximate::kTanh, CallOptions options = {}) const {
    self().run_op("gelu_mul", {gate.abi(), up.abi()}, {y.abi()}, {}, static_cast<int>(approximate),
        options);
  }

  // Gradients of the GELU of a gate times a second input (GeGLU).
  //
  //     grad_gate = grad * up * gelu'(gate), the derivative of gelu
  //     grad_up = grad * gelu(gate, approximate)
  //
  // grad: Gradient with respect to the result.
  // gate: Input of the activation.
  // up: Factor.
  // grad_gate: The gradients of gate.
  // grad_up: Those of up.
  // approximate: Which of gelu's two formulas.
  void gelu_mul_backward(const ConstArray& grad, const ConstArray& gate, const ConstArray& up,
      const Array& grad_gate, const Array& grad_up, Approximate approximate = Approximate::kTanh,
      CallOptions options = {}) const {
    self().run_op("gelu_mul_backward", {grad.abi(), gate.abi(), up.abi()},
        {grad_gate.abi(), grad_up.abi()}, {}, static_cast<int>(approximate), options);
  }

  // Normalisation of the last axis to mean 0 and variance 1, scaled and shifted.
  //
  //     y = (x - mean(x)) / sqrt(var(x) + eps) * weight + bias
  //
  // x: Input.
  // weight: Scale of each element of a row. A row.
  // bias: Added to each row. A row, or {} for none.
  // y: The normalised rows.
  // eps: Added to the variance.
  void layer_norm(const ConstArray& x, const ConstArray& weight, const ConstArray& bias,
      const Array& y, double eps = 1e-05, CallOptions options = {}) const {
    self().run_op("layer_norm", {x.abi(), weight.abi(), bias.abi()}, {y.abi()}, {eps}, 0, options);
  }

  // Gradients of the layer normalisation.
  //
  //     s = 1 / sqrt(var(x) + eps)
  //     z = s * (x - mean(x))
  //     grad_x = s * (grad * weight - mean(grad * weight) - z * mean(grad * weight * z))
  //     grad_weight = sum over all rows of grad * z
  //     grad_bias = sum over all rows of grad
  //
  // grad: Gradient with respect to the result.
  // x: Input of the norm.
  // weight: Scale of each element of a row. A row.
  // grad_x: The gradients of the rows.
  // grad_weight: That of the weight.
  // grad_bias: That of the bias.
  // eps: Added to the variance.
  void layer_norm_backward(const ConstArray& grad, const ConstArray& x, const ConstArray& weight,
      const Array& grad_x, const Array& grad_weight, const Array& grad_bias, double eps = 1e-05,
      CallOptions options = {}) const {
    self().run_op("layer_norm_backward", {grad.abi(), x.abi(), weight.abi()},
        {grad_x.abi(), grad_weight.abi(), grad_bias.abi()}, {eps}, 0, options);
  }

  // Root-mean-square normalisation of the last axis.
  //
  //     y = x * weight / sqrt(mean(x**2) + eps)
  //
  // x: Input.
  // weight: Scale of each element of a row. A row.
  // y: The normalised rows.
  // eps: Added to the mean of squares.
  void rms_norm(const ConstArray& x, const ConstArray& weight, const Array& y, double eps = 1e-06,
      CallOptions options = {}) const {
    self().run_op("rms_norm", {x.abi(), weight.abi()}, {y.abi()}, {eps}, 0, options);
  }

  // Gradients of the root-mean-square normalisation.
  //
  //     s = 1 / sqrt(mean(x**2) + eps)
  //     grad_x = s * (grad * weight - s * x * mean(grad * weight * s * x))
  //     grad_weight = sum over all rows of grad * s * x
  //
  // grad: Gradient with respect to the result.
  // x: Input of the norm.
  // weight: Scale of each element of a row. A row.
  // grad_x: The gradients of the rows.
  // grad_weight: That of the weight.
  // eps: Added to the mean of squares.
  void rms_norm_backward(const ConstArray& grad, const ConstArray& x, const ConstArray& weight,
      const Array& grad_x, const Array& grad_weight, double eps = 1e-06,
      CallOptions options = {}) const {
    self().run_op("rms_norm_backward", {grad.abi(), x.abi(), weight.abi()},
        {grad_x.abi(), grad_weight.abi()}, {eps}, 0, options);
  }

  // Rotary position embedding of the last axis.
  //
  //     y0 = a * cos - b * sin
  //     y1 = b * cos + a * sin
  //     with the pairs (a, b) = (x[i], x[i + n/2]), or (x[2 i], x[2 i + 1]) if interleaved.
  //
  // x: Input; n must be even.
  // cos: Cosines of the angles. Half as long as x along the last axis.
  // sin: Sines of the angles. Half as long as x along the last axis.
  // y: The rotated rows.
  // interleaved: Rotate neighbours instead of the row's two halves.
  void rope(const ConstArray& x, const ConstArray& cos, const ConstArray& sin, const Array& y,
      bool interleaved = false, CallOptions options = {}) const {
    self().run_op("rope", {x.abi(), cos.abi(), sin.abi()}, {y.abi()}, {}, interleaved ? 1 : 0,
        options);
  }

  // Sigmoid linear unit (SiLU, swish), element by element.
  //
  //     y = x / (1 + exp(-x))
  //
  // x: Input.
  // y: The activations.
  void silu(const ConstArray& x, const Array& y, CallOptions options = {}) const {
    self().run_op("silu", {x.abi()}, {y.abi()}, {}, 0, options);
  }

  // Gradient of the sigmoid linear unit (SiLU), element by element.
  //
  //     grad_x = grad * s * (1 + x * (1 - s)), s = 1 / (1 + exp(-x))
  //
  // grad: Gradient with respect to the result.
  // x: Input of the activation.
  // grad_x: The gradients.
  void silu_backward(const ConstArray& grad, const ConstArray& x, const Array& grad_x,
      CallOptions options = {}) const {
    self().run_op("silu_backward", {grad.abi(), x.abi()}, {grad_x.abi()}, {}, 0, options);
  }

  // SiLU of a gate times a second input (SwiGLU), element by element.
  //
  //     y = gate / (1 + exp(-gate)) * up
  //
  // gate: Input of the activation.
  // up: Factor.
  // y: The products.
  void silu_mul(const ConstArray& gate, const ConstArray& up, const Array& y,
      CallOptions options = {}) const {
    self().run_op("silu_mul", {gate.abi(), up.abi()}, {y.abi()}, {}, 0, options);
  }

  // Gradients of the SiLU of a gate times a second input (SwiGLU).
  //
  //     grad_gate = grad * up * s * (1 + gate * (1 - s)), s = 1 / (1 + exp(-gate))
  //     grad_up = grad * gate * s
  //
  // grad: Gradient with respect to the result.
  // gate: Input of the activation.
  // up: Factor.
  // grad_gate: The gradients of gate.
  // grad_up: Those of up.
  void silu_mul_backward(const ConstArray& grad, const ConstArray& gate, const ConstArray& up,
      const Array& grad_gate, const Array& grad_up, CallOptions options = {}) const {
    self().run_op("silu_mul_backward", {grad.abi(), gate.abi(), up.abi()},
        {grad_gate.abi(), grad_up.abi()}, {}, 0, options);
  }

  // Softmax of the scaled last axis, stable for any magnitude.
  //
  //     y = exp(scale * x - max(scale * x)) / sum(exp(scale * x - max(scale * x)))
  //
  // x: Input.
  // y: The probabilities, which add up to 1 along each row.
  // scale: Multiplies x.
  void softmax(const ConstArray& x, const Array& y, double scale = 1.0,
      CallOptions options = {}) const {
    self().run_op("softmax", {x.abi()}, {y.abi()}, {scale}, 0, options);
  }

  // Gradient of the softmax of the scaled last axis.
  //
  //     grad_x = scale * y * (grad - sum(grad * y))
  //
  // grad: Gradient with respect to the result.
  // y: Result of the softmax.
  // grad_x: The gradients.
  // scale: What has multiplied x.
  void softmax_backward(const ConstArray& grad, const ConstArray& y, const Array& grad_x,
      double scale = 1.0, CallOptions options = {}) const {
    self().run_op("softmax_backward", {grad.abi(), y.abi()}, {grad_x.abi()}, {scale}, 0, options);
  }

 protected:
  ~Ops() = default;

 private:
  const Self& self() const { return static_cast<const Self&>(*this); }
};

}  // namespace tensor_ops::backend
