// The matrix products of a Qwen2.5-7B layer with LoRA r16 in slabs: cuBLAS's own choice of kernel against every one that
// cuBLASLt's heuristics name, under sustained load. JSON lines, the fastest first.
//
//   cublaslt_products [ROWS…]
//
// forward: y [S, N] = x [S, K + R]·W [N, K + R]ᵀ; input_gradient: dx [S, K] = dy [S, N + R]·W [N + R, K], rows of W K + R apart.
#include <cublasLt.h>
#include <cublas_v2.h>
#include <cuda_runtime.h>
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

constexpr int kCandidates = 24;
constexpr int kRounds = 3;
constexpr double kBatchMs = 60;
constexpr std::size_t kWorkspace = std::size_t{64} << 20;

void check(cudaError_t status) {
  if (status != cudaSuccess) {
    throw std::runtime_error(cudaGetErrorString(status));
  }
}

void check(cublasStatus_t status) {
  if (status != CUBLAS_STATUS_SUCCESS) {
    throw std::runtime_error(cublasGetStatusString(status));
  }
}

/// Device memory of random bf16 numbers of a training step's size: what zeros would take less power for.
class Buffer {
 public:
  explicit Buffer(std::int64_t elements) {
    const auto bytes = static_cast<std::size_t>(elements) * 2;
    check(cudaMalloc(&data_, bytes));
    static const std::vector<std::uint16_t> kNumbers = numbers();
    const std::size_t piece = kNumbers.size() * 2;
    for (std::size_t done = 0; done < bytes; done += piece) {
      check(cudaMemcpy(static_cast<char*>(data_) + done, kNumbers.data(),
                       std::min(piece, bytes - done), cudaMemcpyHostToDevice));
    }
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() { cudaFree(data_); }
  [[nodiscard]] void* get() const { return data_; }

 private:
  static std::vector<std::uint16_t> numbers() {
    std::mt19937 random(1);  // NOLINT(cert-msc51-cpp): the same numbers every time
    std::normal_distribution<float> normal(0, 0.05F);
    std::vector<std::uint16_t> list(std::size_t{16} << 20);
    for (std::uint16_t& one : list) {
      one = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(normal(random)) >> 16);
    }
    return list;
  }
  void* data_ = nullptr;
};

struct Shape {
  std::string name;
  std::int64_t outputs = 0;
  std::int64_t inputs = 0;
  std::int64_t room = 0;
};

const Shape kShapes[] = {{"qkv", 4608, 3584, 48},
                         {"attention_out", 3584, 3584, 16},
                         {"mlp_in", 37888, 3584, 32},
                         {"mlp_down", 3584, 18944, 16}};

/// A product as cuBLAS sees it, column by column: c [m, rows] = op(w) [m, k]·in [k, rows].
struct Product {
  cublasOperation_t op = CUBLAS_OP_N;
  std::int64_t m = 0;
  std::int64_t rows = 0;
  std::int64_t k = 0;
  std::int64_t w_pitch = 0;
  std::int64_t in_pitch = 0;
};

Product forward_of(const Shape& shape, std::int64_t rows) {
  const std::int64_t wide = shape.inputs + shape.room;
  return {CUBLAS_OP_T, shape.outputs, rows, wide, wide, wide};
}

Product input_gradient_of(const Shape& shape, std::int64_t rows) {
  return {CUBLAS_OP_N,
          shape.inputs,
          rows,
          shape.outputs + shape.room,
          shape.inputs + shape.room,
          shape.outputs + shape.room};
}

/// Milliseconds of one of `calls` calls.
double time_calls(const std::function<void()>& call, int calls) {
  static cudaEvent_t events[2] = {nullptr, nullptr};
  if (events[0] == nullptr) {
    check(cudaEventCreate(&events[0]));
    check(cudaEventCreate(&events[1]));
  }
  check(cudaEventRecord(events[0], nullptr));
  for (int i = 0; i < calls; ++i) {
    call();
  }
  check(cudaEventRecord(events[1], nullptr));
  check(cudaEventSynchronize(events[1]));
  float ms = 0;
  check(cudaEventElapsedTime(&ms, events[0], events[1]));
  return static_cast<double>(ms) / calls;
}

class Measurement {
 public:
  Measurement() {
    check(cublasCreate(&blas_));
    check(cublasLtCreate(&lt_));
    check(cudaMalloc(&workspace_, kWorkspace));
    check(cublasSetWorkspace(blas_, workspace_, kWorkspace));
  }

  void run(const Shape& shape, const std::string& pass, const Product& product) {
    const Buffer w((shape.outputs + shape.room) * (shape.inputs + shape.room));
    const Buffer in(product.rows * product.in_pitch);
    const Buffer out(product.rows * product.m);
    const float one = 1;
    const float zero = 0;
    std::vector<std::function<void()>> calls = {[&] {
      check(cublasGemmEx(blas_, product.op, CUBLAS_OP_N, static_cast<int>(product.m),
                         static_cast<int>(product.rows), static_cast<int>(product.k), &one, w.get(),
                         CUDA_R_16BF, static_cast<int>(product.w_pitch), in.get(), CUDA_R_16BF,
                         static_cast<int>(product.in_pitch), &zero, out.get(), CUDA_R_16BF,
                         static_cast<int>(product.m), CUBLAS_COMPUTE_32F,
                         CUBLAS_GEMM_DEFAULT_TENSOR_OP));
    }};
    const Layouts layouts(product);
    const std::vector<cublasLtMatmulHeuristicResult_t> found = heuristics(layouts);
    for (const cublasLtMatmulHeuristicResult_t& one_found : found) {
      calls.emplace_back([&] {
        check(cublasLtMatmul(lt_, layouts.description, &one, w.get(), layouts.w, in.get(),
                             layouts.in, &zero, out.get(), layouts.out, out.get(), layouts.out,
                             &one_found.algo, workspace_, kWorkspace, nullptr));
      });
    }
    report(shape, pass, product, medians(calls), found);
  }

 private:
  struct Layouts {
    explicit Layouts(const Product& p) {
      check(cublasLtMatmulDescCreate(&description, CUBLAS_COMPUTE_32F, CUDA_R_32F));
      check(cublasLtMatmulDescSetAttribute(description, CUBLASLT_MATMUL_DESC_TRANSA, &p.op,
                                           sizeof p.op));
      const auto rows = static_cast<std::uint64_t>(p.rows);
      const auto m = static_cast<std::uint64_t>(p.m);
      const auto k = static_cast<std::uint64_t>(p.k);
      const bool turned = p.op == CUBLAS_OP_T;
      check(cublasLtMatrixLayoutCreate(&w, CUDA_R_16BF, turned ? k : m, turned ? m : k, p.w_pitch));
      check(cublasLtMatrixLayoutCreate(&in, CUDA_R_16BF, k, rows, p.in_pitch));
      check(cublasLtMatrixLayoutCreate(&out, CUDA_R_16BF, m, rows, p.m));
    }
    Layouts(const Layouts&) = delete;
    Layouts& operator=(const Layouts&) = delete;
    ~Layouts() {
      cublasLtMatrixLayoutDestroy(w);
      cublasLtMatrixLayoutDestroy(in);
      cublasLtMatrixLayoutDestroy(out);
      cublasLtMatmulDescDestroy(description);
    }
    cublasLtMatmulDesc_t description = nullptr;
    cublasLtMatrixLayout_t w = nullptr;
    cublasLtMatrixLayout_t in = nullptr;
    cublasLtMatrixLayout_t out = nullptr;
  };

  std::vector<cublasLtMatmulHeuristicResult_t> heuristics(const Layouts& layouts) {
    cublasLtMatmulPreference_t preference = nullptr;
    check(cublasLtMatmulPreferenceCreate(&preference));
    check(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                               &kWorkspace, sizeof kWorkspace));
    std::vector<cublasLtMatmulHeuristicResult_t> found(kCandidates);
    int count = 0;
    check(cublasLtMatmulAlgoGetHeuristic(lt_, layouts.description, layouts.w, layouts.in,
                                         layouts.out, layouts.out, preference, kCandidates,
                                         found.data(), &count));
    check(cublasLtMatmulPreferenceDestroy(preference));
    found.resize(static_cast<std::size_t>(count));
    return found;
  }

  /// All calls in turn, several times, so that they share the clock that the power leaves.
  static std::vector<double> medians(const std::vector<std::function<void()>>& calls) {
    std::vector<std::vector<double>> times(calls.size());
    std::vector<int> batch(calls.size());
    for (std::size_t i = 0; i < calls.size(); ++i) {
      time_calls(calls[i], 3);
      batch[i] = std::max(1, static_cast<int>(kBatchMs / time_calls(calls[i], 3)));
    }
    for (int round = 0; round < kRounds; ++round) {
      for (std::size_t i = 0; i < calls.size(); ++i) {
        times[i].push_back(time_calls(calls[i], batch[i]));
      }
    }
    std::vector<double> result;
    for (std::vector<double>& one : times) {
      std::nth_element(one.begin(), one.begin() + kRounds / 2, one.end());
      result.push_back(one[kRounds / 2]);
    }
    return result;
  }

  static std::uint32_t attribute(const cublasLtMatmulAlgo_t& algo,
                                 cublasLtMatmulAlgoConfigAttributes_t which) {
    std::uint32_t value = 0;
    std::size_t written = 0;
    const cublasStatus_t status =
        cublasLtMatmulAlgoConfigGetAttribute(&algo, which, &value, sizeof value, &written);
    return status == CUBLAS_STATUS_SUCCESS ? value : 0;
  }

  static void report(const Shape& shape, const std::string& pass, const Product& product,
                     const std::vector<double>& ms,
                     const std::vector<cublasLtMatmulHeuristicResult_t>& found) {
    std::vector<std::size_t> order(found.size());
    for (std::size_t i = 0; i < order.size(); ++i) {
      order[i] = i;
    }
    std::sort(order.begin(), order.end(),
              [&](std::size_t a, std::size_t b) { return ms[a + 1] < ms[b + 1]; });
    const double flops = 2.0 * static_cast<double>(product.m) * static_cast<double>(product.rows) *
                         static_cast<double>(product.k);
    std::string best;
    for (std::size_t i = 0; i < std::min<std::size_t>(4, order.size()); ++i) {
      const cublasLtMatmulAlgo_t& algo = found[order[i]].algo;
      best += fmt::format(
          R"({}{{"rank":{},"ms":{:.4f},"id":{},"tile":{},"stages":{},"cluster":{},"split_k":{},"swizzle":{}}})",
          i == 0 ? "" : ",", order[i], ms[order[i] + 1], attribute(algo, CUBLASLT_ALGO_CONFIG_ID),
          attribute(algo, CUBLASLT_ALGO_CONFIG_TILE_ID),
          attribute(algo, CUBLASLT_ALGO_CONFIG_STAGES_ID),
          attribute(algo, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID),
          attribute(algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM),
          attribute(algo, CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING));
    }
    fmt::print(
        R"({{"product":"{}","pass":"{}","rows":{},"candidates":{},"cublas_ms":{:.4f},"cublas_tflops":{:.1f},"first_ms":{:.4f},"best":[{}]}})"
        "\n",
        shape.name, pass, product.rows, found.size(), ms[0], flops / ms[0] * 1e-9,
        found.empty() ? 0.0 : ms[1], best);
    std::fflush(stdout);
  }

  cublasHandle_t blas_ = nullptr;
  cublasLtHandle_t lt_ = nullptr;
  void* workspace_ = nullptr;
};

}  // namespace

int main(int argc, char** argv) {
  try {
    std::vector<std::int64_t> rows;
    for (int i = 1; i < argc; ++i) {
      rows.push_back(std::atoll(argv[i]));  // NOLINT(cert-err34-c): a wrong word is a row of 0
    }
    if (rows.empty()) {
      rows = {8192, 16384, 32768};
    }
    Measurement measurement;
    for (const std::int64_t count : rows) {
      for (const Shape& shape : kShapes) {
        measurement.run(shape, "forward", forward_of(shape, count));
        measurement.run(shape, "input_gradient", input_gradient_of(shape, count));
      }
    }
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 3;
  }
  return 0;
}
