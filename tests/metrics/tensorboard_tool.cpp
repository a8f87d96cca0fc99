// Writes the event files that tensorboard_oracle.py reads: tensorboard_tool FOLDER
#include <cmath>
#include <cstdint>
#include <string>

#include "metrics/records.h"
#include "metrics/tensorboard_writer.h"

int main(int argc, char** argv) {
  using namespace longhaul;  // NOLINT(google-build-using-namespace): a test program of one page
  if (argc != 2) {
    return 2;
  }
  const std::string folder = argv[1];
  {
    metrics::TensorBoardWriter writer(folder + "/plain");
    for (std::int64_t step = 0; step < 300; ++step) {
      metrics::StepRecord record = metrics::sample_step(step);
      record.loss = 3.0 / static_cast<double>(step + 1);
      record.tokens_per_second = 1234.5;
      writer.write(record);
    }
    writer.write(metrics::sample_eval(299));
    writer.write(1'000'000'000'000, {{"odd/тег", std::nan("")}, {"", 1.0}});
  }
  {
    metrics::TensorBoardWriter first(folder + "/resumed");
    for (std::int64_t step = 1; step <= 10; ++step) {
      first.write(step, {{"train/loss", 1.0}});
    }
    metrics::TensorBoardWriter second(folder + "/resumed", 4);
    for (std::int64_t step = 5; step <= 8; ++step) {
      second.write(step, {{"train/loss", 2.0}});
    }
  }
  return 0;
}
