# shellcheck shell=sh disable=SC3028,SC3054,SC2128
# Puts longhaul on PATH of this shell: . ./env.sh
if [ -n "${BASH_SOURCE:-}" ]; then
  longhaul_root=$(cd "$(dirname "${BASH_SOURCE}")" && pwd)
elif [ -n "${ZSH_VERSION:-}" ]; then
  longhaul_root=$(cd "$(dirname "$0")" && pwd)
else
  longhaul_root=$PWD
fi
if [ -x "$longhaul_root/build/release/longhaul" ]; then
  PATH=$longhaul_root/build/release:$PATH
  export PATH
else
  echo "longhaul is not built in $longhaul_root yet: run ./quickstart there first" >&2
fi
unset longhaul_root
