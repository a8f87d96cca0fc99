// The commands: one function and one file each. A command gets the validated Config, prints its
// results on standard output and returns the exit code; errors are thrown and printed by main.cpp
// alone.
#pragma once

#include "config/config.h"

namespace longhaul::cli {

class RankSession;

/// `sft` and `pt`: trains as one rank, returns 0, or 128 + signal after an interrupt.
int run_sft(const config::Config& config, RankSession& session);
/// Measures as one rank; JSON lines.
int run_bench(const config::Config& config, RankSession& session);
/// Prints what `sft` would do, from config.json only.
int run_plan(const config::Config& config);
/// Chat in a terminal, or a batch over a JSONL file.
int run_infer(const config::Config& config);
/// Merges an adapter into its base model.
int run_export(const config::Config& config);
/// What training will see; `--tokenize` and `--dump_tokens`.
int run_data(const config::Config& config);
/// One line per part of this machine; 0 when some device can train, else 3.
int run_doctor(const config::Config& config);

}  // namespace longhaul::cli
