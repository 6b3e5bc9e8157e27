# Shared by tools/quickstart and tools/test; sourced by bash, never run.
# shellcheck shell=bash

project_root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
build_dir=$project_root/build

say() { printf '%s: %s\n' "$(basename "$0")" "$*" >&2; }

# run_logged LOG WHAT COMMAND...: runs the command with its output added to LOG. On
# failure shows the log's last 40 lines, says WHAT failed, and ends the script.
run_logged() {
  local log=$1 what=$2
  shift 2
  "$@" >>"$log" 2>&1 && return
  tail -n 40 "$log" >&2
  say "$what failed; the whole log is in ${log#"$project_root"/}"
  exit 1
}

# How many compilers fit: one a core, and about 2 GiB of free memory for each.
build_jobs() {
  local cores free_kib by_memory
  cores=$(nproc)
  free_kib=$(awk '/^MemAvailable:/ { print $2 }' /proc/meminfo 2>/dev/null || true)
  by_memory=$((${free_kib:-4194304} / 2097152))
  ((by_memory >= 1)) || by_memory=1
  echo $((cores < by_memory ? cores : by_memory))
}

# configure_and_build LOG [TARGET]: brings build/ up to date (all of it without TARGET).
configure_and_build() {
  local log=$1
  mkdir -p "$build_dir"
  : >"$log"
  cd "$project_root"
  [[ -e $build_dir/bin/llm-opt ]] ||
    say "building; the first time takes some minutes (log: ${log#"$project_root"/})"
  run_logged "$log" "configuring" cmake --preset dev
  run_logged "$log" "building" \
    cmake --build "$build_dir" --parallel "$(build_jobs)" ${2:+--target "$2"}
}
