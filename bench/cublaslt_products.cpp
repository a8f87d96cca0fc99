// The matrix products of a Qwen2.5-7B layer with LoRA r16 in slabs: cuBLAS's own choice of kernel against every one that
// cuBLASLt's heuristics name, under sustained load. JSON lines, the fastest first; `same_bits`: as cuBLAS's, looked at in the first
// and last rows.
//
//   cublaslt_products [--all] [ROWS…]      --all first: also large tiles, clusters of two and both orders of blocks of the heuristics' first kernel family
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
#include <string_view>
#include <utility>
#include <vector>

namespace {

constexpr int kCandidates = 24;
constexpr std::size_t kFinalists = 14;
constexpr int kRounds = 3;
constexpr double kBatchMs = 60;
constexpr double kGlanceMs = 4;
constexpr std::int64_t kComparedRows = 256;
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

/// Whether a tile is one of 96 to 320 by 96 to 320 with as many elements as large products want, by cublasLt.h's numbers.
bool is_large(std::uint32_t tile) {
  constexpr std::pair<std::uint32_t, std::uint32_t> kRanges[] = {
      {20, 20},   {23, 24},   {29, 32},   {151, 154}, {159, 162}, {166, 168}, {172, 174},
      {176, 176}, {179, 181}, {184, 186}, {189, 191}, {194, 195}, {197, 198}, {201, 202},
      {205, 206}, {209, 248}, {405, 424}, {458, 470}, {495, 502}, {524, 527}};
  return std::any_of(std::begin(kRanges), std::end(kRanges), [&](const auto& range) {
    return tile >= range.first && tile <= range.second;
  });
}

using Results = std::vector<cublasLtMatmulHeuristicResult_t>;

std::uint32_t attribute(const cublasLtMatmulAlgo_t& algo,
                        cublasLtMatmulAlgoConfigAttributes_t which) {
  std::uint32_t value = 0;
  std::size_t written = 0;
  const std::size_t bytes = which == CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID ? 2 : sizeof value;
  const cublasStatus_t status =
      cublasLtMatmulAlgoConfigGetAttribute(&algo, which, &value, bytes, &written);
  return status == CUBLAS_STATUS_SUCCESS ? value : 0;
}

/// cuBLASLt's description of a product.
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

class Measurement {
 public:
  explicit Measurement(bool all) : all_(all) {
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
    const auto cublas = [&] {
      check(cublasGemmEx(blas_, product.op, CUBLAS_OP_N, static_cast<int>(product.m),
                         static_cast<int>(product.rows), static_cast<int>(product.k), &one, w.get(),
                         CUDA_R_16BF, static_cast<int>(product.w_pitch), in.get(), CUDA_R_16BF,
                         static_cast<int>(product.in_pitch), &zero, out.get(), CUDA_R_16BF,
                         static_cast<int>(product.m), CUBLAS_COMPUTE_32F,
                         CUBLAS_GEMM_DEFAULT_TENSOR_OP));
    };
    const Layouts layouts(product);
    const auto lt = [&](const cublasLtMatmulAlgo_t& algo) {
      check(cublasLtMatmul(lt_, layouts.description, &one, w.get(), layouts.w, in.get(), layouts.in,
                           &zero, out.get(), layouts.out, out.get(), layouts.out, &algo, workspace_,
                           kWorkspace, nullptr));
    };
    Results found = heuristics(layouts);
    if (all_ && !found.empty()) {
      found = finalists(layouts, found, lt);
    }
    std::vector<std::function<void()>> calls = {cublas};
    for (const cublasLtMatmulHeuristicResult_t& result : found) {
      calls.emplace_back([&lt, &result] { lt(result.algo); });
    }
    std::vector<bool> same_bits;
    std::vector<std::uint16_t> reference;
    for (const std::function<void()>& call : calls) {
      check(cudaMemset(out.get(), 0xff, static_cast<std::size_t>(product.rows * product.m) * 2));
      call();
      const std::vector<std::uint16_t> rows = outer_rows(out, product);
      same_bits.push_back(reference.empty() || rows == reference);
      reference = reference.empty() ? rows : reference;
    }
    report(shape, pass, product, medians(calls), found, same_bits);
  }

 private:
  static std::vector<std::uint16_t> outer_rows(const Buffer& out, const Product& product) {
    const auto count = static_cast<std::size_t>(std::min(kComparedRows, product.rows) * product.m);
    const auto all = static_cast<std::size_t>(product.rows * product.m);
    std::vector<std::uint16_t> rows(2 * count);
    const auto* from = static_cast<const std::uint16_t*>(out.get());
    check(cudaMemcpy(rows.data(), from, count * 2, cudaMemcpyDeviceToHost));
    check(cudaMemcpy(rows.data() + count, from + (all - count), count * 2, cudaMemcpyDeviceToHost));
    return rows;
  }

  Results heuristics(const Layouts& layouts) {
    cublasLtMatmulPreference_t preference = nullptr;
    check(cublasLtMatmulPreferenceCreate(&preference));
    check(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                               &kWorkspace, sizeof kWorkspace));
    Results found(kCandidates);
    int count = 0;
    check(cublasLtMatmulAlgoGetHeuristic(lt_, layouts.description, layouts.w, layouts.in,
                                         layouts.out, layouts.out, preference, kCandidates,
                                         found.data(), &count));
    check(cublasLtMatmulPreferenceDestroy(preference));
    found.resize(static_cast<std::size_t>(count));
    return found;
  }

  /// The heuristics' choices and, of every configuration of the first one's family, the fastest at a glance.
  template <typename Call>
  Results finalists(const Layouts& layouts, const Results& named, const Call& call) {
    std::vector<std::pair<double, cublasLtMatmulHeuristicResult_t>> glances;
    for (const cublasLtMatmulHeuristicResult_t& result : configurations(layouts, named[0].algo)) {
      const auto once = [&] { call(result.algo); };
      const double first = time_calls(once, 1);
      const int calls = std::max(1, static_cast<int>(kGlanceMs / first));
      glances.emplace_back(std::min(first, time_calls(once, calls)), result);
    }
    std::sort(glances.begin(), glances.end(),
              [](const auto& a, const auto& b) { return a.first < b.first; });
    glances.resize(std::min(glances.size(), kFinalists));
    Results all = named;
    for (const auto& glance : glances) {
      all.push_back(glance.second);
    }
    return all;
  }

  Results configurations(const Layouts& layouts, const cublasLtMatmulAlgo_t& family) {
    std::size_t bytes = 0;
    check(
        cublasLtMatmulAlgoCapGetAttribute(&family, CUBLASLT_ALGO_CAP_TILE_IDS, nullptr, 0, &bytes));
    std::vector<std::uint32_t> tiles(bytes / sizeof(std::uint32_t));
    check(cublasLtMatmulAlgoCapGetAttribute(&family, CUBLASLT_ALGO_CAP_TILE_IDS, tiles.data(),
                                            bytes, &bytes));
    Results usable;
    tiles.erase(std::remove_if(tiles.begin(), tiles.end(), [](auto id) { return !is_large(id); }),
                tiles.end());
    for (const std::uint32_t tile : tiles) {
      for (const std::uint16_t cluster :
           {CUBLASLT_CLUSTER_SHAPE_2x1x1, CUBLASLT_CLUSTER_SHAPE_1x2x1}) {
        for (const std::uint32_t swizzle : {0U, 1U}) {
          cublasLtMatmulHeuristicResult_t result{};
          result.algo = family;
          set(result.algo, CUBLASLT_ALGO_CONFIG_TILE_ID, tile);
          set(result.algo, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, cluster);
          set(result.algo, CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING, swizzle);
          cublasLtMatmulHeuristicResult_t checked{};
          if (cublasLtMatmulAlgoCheck(lt_, layouts.description, layouts.w, layouts.in, layouts.out,
                                      layouts.out, &result.algo,
                                      &checked) == CUBLAS_STATUS_SUCCESS &&
              checked.workspaceSize <= kWorkspace) {
            result.workspaceSize = checked.workspaceSize;
            usable.push_back(result);
          }
        }
      }
    }
    return usable;
  }

  template <typename Value>
  static void set(cublasLtMatmulAlgo_t& algo, cublasLtMatmulAlgoConfigAttributes_t which,
                  Value value) {
    // What a family does not know, it refuses here; AlgoCheck then judges the rest.
    (void)cublasLtMatmulAlgoConfigSetAttribute(&algo, which, &value, sizeof value);
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

  static void report(const Shape& shape, const std::string& pass, const Product& product,
                     const std::vector<double>& ms, const Results& found,
                     const std::vector<bool>& same_bits) {
    std::vector<std::size_t> order(found.size());
    for (std::size_t i = 0; i < order.size(); ++i) {
      order[i] = i;
    }
    std::sort(order.begin(), order.end(),
              [&](std::size_t a, std::size_t b) { return ms[a + 1] < ms[b + 1]; });
    const double flops = 2.0 * static_cast<double>(product.m) * static_cast<double>(product.rows) *
                         static_cast<double>(product.k);
    std::string best;
    for (const std::size_t i : order) {
      const cublasLtMatmulAlgo_t& algo = found[i].algo;
      best += fmt::format(
          R"({}{{"rank":{},"ms":{:.4f},"same_bits":{},"id":{},"tile":{},"stages":{},"cluster":{},"split_k":{},"swizzle":{},"workspace":{}}})",
          best.empty() ? "" : ",", i, ms[i + 1], bool{same_bits[i + 1]},
          attribute(algo, CUBLASLT_ALGO_CONFIG_ID), attribute(algo, CUBLASLT_ALGO_CONFIG_TILE_ID),
          attribute(algo, CUBLASLT_ALGO_CONFIG_STAGES_ID),
          attribute(algo, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID),
          attribute(algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM),
          attribute(algo, CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING), found[i].workspaceSize);
    }
    fmt::print(
        R"({{"product":"{}","pass":"{}","rows":{},"candidates":{},"cublas_ms":{:.4f},"cublas_tflops":{:.1f},"first_ms":{:.4f},"best":[{}]}})"
        "\n",
        shape.name, pass, product.rows, found.size(), ms[0], flops / ms[0] * 1e-9,
        found.empty() ? 0.0 : ms[1], best);
    std::fflush(stdout);
  }

  bool all_ = false;
  cublasHandle_t blas_ = nullptr;
  cublasLtHandle_t lt_ = nullptr;
  void* workspace_ = nullptr;
};

}  // namespace

int main(int argc, char** argv) {
  try {
    std::vector<std::int64_t> rows;
    const bool all = argc > 1 && std::string_view(argv[1]) == "--all";
    for (int i = all ? 2 : 1; i < argc; ++i) {
      rows.push_back(std::atoll(argv[i]));  // NOLINT(cert-err34-c): a wrong word is a row of 0
    }
    if (rows.empty()) {
      rows = {8192, 16384, 32768};
    }
    Measurement measurement(all);
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
