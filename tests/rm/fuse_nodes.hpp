// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <thread>

namespace upcie::rm::test {

/// Three files, control, gpu and uvm, whose ioctls are answered as a driver would (target_calls.hpp): a file system of
/// FUSE, spoken to the kernel directly. The kernel itself copies arguments in and out, and no filter of seccomp is
/// involved, so that the tracer's own is seen at work. Needs root and /dev/fuse.
class FuseNodes {
  public:
    /// `folder` exists and is empty.
    explicit FuseNodes(std::string folder);
    FuseNodes(const FuseNodes&) = delete;
    FuseNodes& operator=(const FuseNodes&) = delete;
    ~FuseNodes();
    /// Empty, or why there are no such nodes here.
    [[nodiscard]] const std::string& problem() const noexcept { return problem_; }

  private:
    void serve() const;
    std::string folder_;
    std::string problem_;
    int connection_ = -1;
    std::thread server_;
};

} // namespace upcie::rm::test
