// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <map>
#include <string>
#include <utility>

#include <upcie/rm/call.hpp>
#include <upcie/rm/objects.hpp>
#include <upcie/rm/push_buffer.hpp>
#include <upcie/rm/trace.hpp>

namespace upcie::rm::tool {

/// What an ioctl acts on, in words: " on channel 1 (0x5c000010)"; empty for one that has no object.
[[nodiscard]] std::string objects_of_call(const Call& call, const ObjectTree& tree);
/// A record that is no ioctl, in words.
[[nodiscard]] std::string record_text(const Record& record);

/// Words for what rings say; remembers which class is bound to which subchannel.
class SubmissionText {
  public:
    [[nodiscard]] std::string text(const Submission& submission, const ObjectTree& tree);

  private:
    std::map<std::pair<std::size_t, std::uint8_t>, std::uint32_t> bound_; ///< class by channel and subchannel
    [[nodiscard]] ClassRole engine(const Submission& submission, std::uint8_t subchannel, const ObjectTree& tree) const;
};

} // namespace upcie::rm::tool
