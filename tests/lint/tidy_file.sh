#!/usr/bin/env bash
# tidy_file.sh CLANG_TIDY CXX SOURCE_DIR BUILD_DIR FILE STAMP: clang-tidy on one file, with a stamp on success.
# The analyzer follows at most so many states per function: enough for its findings here, a quarter of the time.
# Beside the stamp lies a dependency file, so that a changed header runs it again.
set -euo pipefail

readonly max_nodes=10000
clang_tidy=$1 cxx=$2 source_dir=$3 build_dir=$4 file=$5 stamp=$6
if ! report=$("$clang_tidy" --quiet -p "$build_dir" --extra-arg=-include"$source_dir/tests/lint/source_location_for_clang14.h" \
  --extra-arg=-Wno-unknown-warning-option --extra-arg=-Xclang --extra-arg=-analyzer-config --extra-arg=-Xclang \
  --extra-arg=max-nodes=$max_nodes "$file" 2>&1); then
  grep -vE '^[0-9]+ warnings? (and [0-9]+ errors? )?generated|^(Suppressed|Use -header-filter)' <<<"$report" >&2
  exit 1
fi
"$cxx" -std=c++20 -I"$source_dir/src" -MM -MF "$stamp.d" -MT "$stamp" "$file"
touch "$stamp"
