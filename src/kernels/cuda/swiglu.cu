// SwiGLU and its gradient, element-wise over [rows, width]; gate and up are halves of one row.
#include "kernels/cuda/kernels.cuh"
#include "kernels/cuda/row_map.cuh"

namespace longhaul::kernels::cuda {
namespace {

template <typename T>
__device__ float sigmoid(float x) {
  if constexpr (std::is_same_v<T, float>) {
    return 1.0F / (1.0F + exponential<T>(-x));
  } else {
    return fast_reciprocal(1.0F + exponential<T>(-x));
  }
}

template <typename T, int N>
struct GateUp {
  Vector<T, N> gate;
  Vector<T, N> up;
};

template <typename T, int N>
__device__ GateUp<T, N> load_gate_up(const void* base, std::int64_t offset, std::int64_t width) {
  const T* gate = static_cast<const T*>(base) + offset;
  return {load_vector<N>(gate), load_vector<N>(gate + width)};
}

template <typename T, int N>
struct ForwardBody {
  using Values = GateUp<T, N>;
  SwigluForward a;

  __device__ Values load(std::int64_t row, std::uint32_t item) const {
    return load_gate_up<T, N>(a.gate_up, row * a.gate_up_pitch + std::int64_t{item} * N, a.width);
  }
  __device__ void finish(std::int64_t row, std::uint32_t item, const Values& in) const {
    float out[N];
#pragma unroll
    for (int i = 0; i < N; ++i) {
      out[i] = in.gate[i] * sigmoid<T>(in.gate[i]) * in.up[i];
    }
    store_vector(static_cast<T*>(a.out) + row * a.out_pitch + std::int64_t{item} * N,
                 to_vector<T>(out));
  }
};

template <typename T, int N, bool kOut>
struct BackwardBody {
  struct Values {
    GateUp<T, N> in;
    Vector<T, N> dout;
  };
  SwigluBackward a;

  __device__ Values load(std::int64_t row, std::uint32_t item) const {
    const std::int64_t column = std::int64_t{item} * N;
    return {load_gate_up<T, N>(a.gate_up, row * a.gate_up_pitch + column, a.width),
            load_vector<N>(static_cast<const T*>(a.dout) + row * a.dout_pitch + column)};
  }
  __device__ void finish(std::int64_t row, std::uint32_t item, const Values& values) const {
    const std::int64_t column = std::int64_t{item} * N;
    float dgate[N];
    float dup[N];
    float out[N];
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const float gate = values.in.gate[i];
      const float dout = values.dout[i];
      const float s = sigmoid<T>(gate);
      const float silu = gate * s;
      dgate[i] = dout * values.in.up[i] * fmaf(silu, 1.0F - s, s);
      dup[i] = dout * silu;
      out[i] = silu * values.in.up[i];
    }
    T* to = static_cast<T*>(a.dgate_up) + row * a.dgate_up_pitch + column;
    store_vector(to, to_vector<T>(dgate));
    store_vector(to + a.width, to_vector<T>(dup));
    if constexpr (kOut) {
      store_vector(static_cast<T*>(a.out) + row * a.out_pitch + column, to_vector<T>(out));
    }
  }
};

template <typename T, bool kOut>
void run_backward(const SwigluBackward& a, Stream stream) {
  const bool aligned = a.width % kPack<T> == 0 && rows_aligned({{a.gate_up, a.gate_up_pitch},
                                                                {a.dout, a.dout_pitch},
                                                                {a.dgate_up, a.dgate_up_pitch},
                                                                {a.out, a.out_pitch}},
                                                               a.rows, sizeof(T));
  if (aligned) {
    map_rows<2>("swiglu_backward", BackwardBody<T, kPack<T>, kOut>{a}, a.rows, a.width / kPack<T>,
                stream);
  } else {
    map_rows<4>("swiglu_backward", BackwardBody<T, 1, kOut>{a}, a.rows, a.width, stream);
  }
}

}  // namespace

void swiglu_forward(const SwigluForward& a, Stream stream) {
  dispatch(a.dtype, [&](auto tag) {
    using T = decltype(tag);
    const bool aligned =
        a.width % kPack<T> == 0 &&
        rows_aligned({{a.gate_up, a.gate_up_pitch}, {a.out, a.out_pitch}}, a.rows, sizeof(T));
    if (aligned) {
      map_rows<2>("swiglu_forward", ForwardBody<T, kPack<T>>{a}, a.rows, a.width / kPack<T>,
                  stream);
    } else {
      map_rows<4>("swiglu_forward", ForwardBody<T, 1>{a}, a.rows, a.width, stream);
    }
  });
}

void swiglu_backward(const SwigluBackward& a, Stream stream) {
  dispatch(a.dtype, [&](auto tag) {
    using T = decltype(tag);
    if (a.out == nullptr) {
      run_backward<T, false>(a, stream);
    } else {
      run_backward<T, true>(a, stream);
    }
  });
}

}  // namespace longhaul::kernels::cuda
