// `longhaul export --merge_lora true`: an adapter merged into its base model.
#include <fmt/format.h>

#include <cstdio>
#include <filesystem>

#include "base/path_state.h"
#include "cli/command.h"
#include "cli/model_source.h"
#include "infer/merge_adapter.h"

namespace longhaul::cli {
namespace {

namespace fs = std::filesystem;

infer::MergeRequest make_request(const config::Config& given, const ModelSource& source) {
  infer::MergeRequest request;
  request.model_folder = source.folder();
  request.adapter = source.adapter.value();
  request.output_folder = base::without_slash(fs::path(given.output.output_dir));
  if (request.output_folder.empty()) {
    request.output_folder = base::without_slash(source.checkpoint);
    request.output_folder += "-merged";
  }
  request.exist_ok = given.export_model.exist_ok;
  // Only what is asked for now: the run's own type says how it computed, not how to store.
  if (given.given.count("torch_dtype") != 0) {
    request.dtype = given.model.torch_dtype;
  }
  if (given.given.count("max_model_len") != 0) {
    request.max_model_len = given.model.max_model_len;
  }
  const fs::path args = source.checkpoint / "args.json";
  if (base::path_exists(args, "--adapters")) {
    request.more_files.push_back(args);  // template and system text for `infer`
  }
  return request;
}

}  // namespace

int run_export(const config::Config& config) {
  const ModelSource source = find_model(config);
  const infer::MergeRequest request = make_request(config, source);
  infer::check_merge_target(request);
  if (!source.note.empty()) {
    fmt::print("{}\n", source.note);
  }
  const infer::MergeReport report = infer::merge_adapter(source.model, request);
  fmt::print("merged {} matrices of {} into {}{}\n", report.merged_matrices,
             request.adapter.folder.string(), request.model_folder.string(),
             report.replaced_tensors > 0
                 ? fmt::format(", {} tensors replaced", report.replaced_tensors)
                 : "");
  if (report.untied) {
    fmt::print("embedding and lm_head are separate tensors now: the adapter trained one of them\n");
  }
  fmt::print("merged model: {}\n", request.output_folder.string());
  std::fflush(stdout);
  return 0;
}

}  // namespace longhaul::cli
