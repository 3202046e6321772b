// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

#include <sys/types.h>

#include <upcie/rm/trace.hpp>

namespace upcie::rm::test {

/// A folder of its own with three plain files that pass for nodes; goes with the object.
class NodeFolder {
  public:
    NodeFolder();
    NodeFolder(const NodeFolder&) = delete;
    NodeFolder& operator=(const NodeFolder&) = delete;
    ~NodeFolder();

    [[nodiscard]] const std::string& path() const noexcept { return path_; }
    [[nodiscard]] std::string file(const std::string& name) const { return path_ + "/" + name; }

  private:
    std::string path_;
};

/// A child process whose output is read.
class Child {
  public:
    explicit Child(const std::vector<std::string>& command);
    Child(const Child&) = delete;
    Child& operator=(const Child&) = delete;
    ~Child();
    [[nodiscard]] pid_t pid() const noexcept { return pid_; }
    /// Next line of its standard output; empty at the end.
    [[nodiscard]] std::string line();
    /// Its end: the exit status, 128 + signal when killed; -1 when it did not end within a minute (it is killed then).
    [[nodiscard]] int wait();
    [[nodiscard]] bool ended();

  private:
    pid_t pid_ = -1;
    int output_ = -1;
    int status_ = -2;
};

/// How the tracer is to be run.
struct Manner {
    bool every_call = false;
    bool supervised = false; ///< the target answers its own ioctls by seccomp's notification
    bool is_static = false;
    std::vector<std::string> more; ///< options of the tracer
};

struct TracedRun {
    int status = -1;
    Trace trace;
    std::vector<const IoctlRecord*> ioctls;
    std::vector<const Record*> ioctl_records;
};

/// The command that runs target `words` under the tracer; the trace goes to `folder`/trace.
[[nodiscard]] std::vector<std::string> traced_command(const NodeFolder& folder, const std::string& nodes,
                                                      const std::vector<std::string>& words, const Manner& manner);
/// Runs it to its end and reads the trace. `nodes`: the folder with control, gpu and uvm; empty: `folder` itself.
[[nodiscard]] TracedRun run_traced(const NodeFolder& folder, const std::vector<std::string>& words,
                                   const Manner& manner = {}, const std::string& nodes = {});
/// The trace of `folder`, as it is now.
void read_into(TracedRun& run, const NodeFolder& folder);

/// Empty, or why nothing can be traced here.
[[nodiscard]] std::string why_not_traceable();

} // namespace upcie::rm::test
