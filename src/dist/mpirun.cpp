#include "dist/mpirun.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <string_view>
#include <system_error>

#include "base/error.h"
#include "dist/starter_process.h"
#include "dist/variables.h"

namespace longhaul::dist {
namespace {

/// Between fork and exec: system calls only.
[[noreturn]] void become_mpirun(char* const* arguments, char* const* environment, int output_fd) {
  leave_launchers_session(output_fd);  // mpirun would end the ranks in mid-step
  execve(arguments[0], arguments, environment);
  constexpr std::string_view kMessage = "cannot be executed\n";
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, kMessage.data(), kMessage.size());
  _exit(127);
}

}  // namespace

std::optional<std::filesystem::path> find_mpirun(const Environment& environment) {
  const std::string path = environment("PATH").value_or("/usr/local/bin:/usr/bin:/bin");
  for (const char* name : {"mpirun.openmpi", "mpirun"}) {
    std::string_view rest = path;
    while (!rest.empty()) {
      const std::string_view folder = rest.substr(0, rest.find(':'));
      rest.remove_prefix(std::min(rest.size(), folder.size() + 1));
      if (folder.empty() || access((std::filesystem::path(folder) / name).c_str(), X_OK) != 0) {
        continue;
      }
      // mpirun takes the parent of its folder for its prefix, and refuses `/`, the parent of the
      // link /bin.
      std::error_code error;
      const std::filesystem::path real = std::filesystem::canonical(folder, error);
      return (error ? std::filesystem::path(folder) : real) / name;
    }
  }
  return std::nullopt;
}

std::vector<std::string> mpirun_arguments(const MpirunRequest& request) {
  std::vector<std::string> arguments{request.mpirun.string(),
                                     "--allow-run-as-root",
                                     "--oversubscribe",
                                     "--bind-to",
                                     "none",
                                     "--host",
                                     fmt::format("localhost:{}", request.ranks),
                                     "-np",
                                     std::to_string(request.ranks)};
  for (const std::string& argument : request.command) {
    if (argument == ":") {
      throw base::UserError({.where = "arguments",
                             .what = "a lone ':' cannot be passed to several ranks",
                             .hint = "mpirun takes it as the end of the program's arguments"});
    }
    arguments.push_back(argument);
  }
  return arguments;
}

std::vector<std::string> mpirun_environment(const MpirunRequest& request,
                                            std::vector<std::string> inherited) {
  std::vector<std::string>& variables = inherited;
  set_launch_variables(variables, request.folder, request.terminal_columns);
  set_thread_variables(variables, request.cores, request.ranks);
  // One machine: shared memory and a local daemon, whatever allocation or network surrounds us.
  set_if_absent(variables, "OMPI_MCA_pml", "ob1");
  set_if_absent(variables, "OMPI_MCA_btl", "self,vader");
  set_if_absent(variables, "OMPI_MCA_btl_vader_single_copy_mechanism",
                request.can_copy_between_processes ? "cma" : "none");
  set_if_absent(variables, "OMPI_MCA_plm", "isolated");
  set_if_absent(variables, "OMPI_MCA_ras", "simulator");
  set_if_absent(variables, "OMPI_MCA_oob_tcp_if_include", "lo");
  set_if_absent(variables, "OMPI_MCA_orte_tmpdir_base", request.folder.string());
  set_if_absent(variables, "OMPI_MCA_mpi_yield_when_idle", "1");
  set_if_absent(variables, "OMPI_MCA_odls_base_sigkill_timeout", "1");
  return inherited;
}

pid_t start_mpirun(const std::vector<std::string>& arguments,
                   const std::vector<std::string>& environment, int output_fd) {
  const std::vector<char*> argument_pointers = pointers_to(arguments);
  const std::vector<char*> environment_pointers = pointers_to(environment);
  const pid_t child = fork();
  if (child < 0) {
    throw base::SystemError(
        {.where = arguments[0],
         .what = "cannot be started: " + std::generic_category().message(errno)});
  }
  if (child == 0) {
    become_mpirun(argument_pointers.data(), environment_pointers.data(), output_fd);
  }
  return child;
}

}  // namespace longhaul::dist
