// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <sys/stat.h>
#include <sys/types.h>

#include <upcie/result.hpp>
#include <upcie/rm/trace.hpp>

namespace upcie::rm {

/// A file that is to count as a node of the driver (--node PATH=KIND).
struct PretendedNode {
    std::string path;
    Node kind = Node::control;
};

/// Reads "PATH=KIND". Error: EINVAL, with the kinds there are.
[[nodiscard]] Result<PretendedNode> parse_pretended_node(std::string_view text);

/// Tells which descriptors of other processes are nodes of the driver. It asks the kernel (/proc/TID/fd) and follows
/// nothing, so that no way of getting a descriptor can be missed. Only for ioctls it remembers a node that it saw,
/// until anything ends a descriptor of any node (forget()): all of those calls are seen.
///
/// Threads: one.
class Nodes {
  public:
    explicit Nodes(std::vector<PretendedNode> pretended);

    /// The node that descriptor `fd` of the stopped thread `tid` refers to; nothing for any other file.
    [[nodiscard]] std::optional<NodeName> of_descriptor(pid_t tid, int fd);
    /// The same, and what stat says of it.
    [[nodiscard]] std::optional<NodeName> of_descriptor(pid_t tid, int fd, struct stat& status);
    /// The same for an ioctl; nullptr for any other file. Valid until the next call of this class.
    [[nodiscard]] const NodeName* of_ioctl(pid_t tid, int fd);
    /// A descriptor of a node is or may be gone: what of_ioctl() remembers is void.
    void forget() noexcept { remembered_.clear(); }
    /// The program has ways to end descriptors that are not seen: of_ioctl() asks each time from now on.
    void remember_nothing() noexcept {
        forget();
        may_remember_ = false;
    }
    /// All nodes that the process of `tid` holds, by descriptor.
    [[nodiscard]] std::vector<HeldNode> held(pid_t tid);
    /// A program made a file: one of --node may exist only now.
    void look_again();
    /// Whether `path` is one of --node.
    [[nodiscard]] bool is_pretended(std::string_view path) const noexcept;
    /// The node that a path names, as /proc/PID/maps has it.
    [[nodiscard]] std::optional<NodeName> of_path(std::string_view path) const;

  private:
    struct Identity {
        dev_t device = 0;
        ino_t inode = 0;
        bool known = false;
    };
    [[nodiscard]] std::optional<NodeName> of_status(pid_t tid, int fd, const struct stat& status);
    [[nodiscard]] std::optional<NodeName> of_device(pid_t tid, int fd, dev_t device);

    std::vector<PretendedNode> pretended_;
    std::vector<Identity> identities_;
    std::map<dev_t, std::optional<NodeName>> devices_;
    std::unordered_map<std::uint64_t, NodeName> remembered_; ///< by thread and descriptor
    NodeName last_;                                          ///< of a call that is not remembered
    bool may_remember_ = true;
};

/// What descriptor `fd` of `tid` refers to, as /proc says it; empty when it is closed.
[[nodiscard]] std::string descriptor_target(pid_t tid, int fd);

} // namespace upcie::rm
