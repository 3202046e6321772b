// SPDX-License-Identifier: BSD-3-Clause
#include "sink.hpp"

#include <cerrno>
#include <ctime>

#include <fcntl.h>
#include <sys/random.h>
#include <unistd.h>

#include "../rm_common/trace_writer.hpp"

namespace upcie::rm {

std::uint64_t monotonic_now() noexcept {
    timespec now{};
    ::clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000U + static_cast<std::uint64_t>(now.tv_nsec);
}

Result<Sink> Sink::open(os::System& system, const std::string& path, bool append) {
    const int number =
        ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | (append ? 0 : O_TRUNC), S_IRUSR | S_IWUSR);
    if (number < 0) {
        return fail(errno, "open", path, "The trace cannot be written there: name another file with -o.");
    }
    std::uint32_t run = 0;
    // Tells the lines of several tracers in one file apart. 53 bits would do; 32 are enough and short.
    if (::getrandom(&run, sizeof run, 0) != sizeof run || run == 0) {
        run = static_cast<std::uint32_t>(::getpid());
    }
    return Sink{os::Fd{system, number}, run};
}

bool Sink::write_line() {
    std::size_t done = 0;
    while (done < line_.size()) {
        const ssize_t wrote = ::write(file_.get(), line_.data() + done, line_.size() - done);
        if (wrote < 0 && errno == EINTR) {
            continue;
        }
        if (wrote <= 0) {
            first_error_ = first_error_ != 0 ? first_error_ : wrote < 0 ? errno : EIO;
            return false;
        }
        done += static_cast<std::size_t>(wrote);
    }
    return true;
}

void Sink::write(TraceHeader header) {
    if (kept_ == nullptr) {
        header.run = run_;
        line_.clear();
        append_line(line_, header);
        lost_ += write_line() ? 0U : 1U;
    }
}

std::uint64_t Sink::emit(Record record) {
    record.stamp.run = run_;
    record.stamp.sequence = next_++;
    queue_.push_back(std::move(record));
    return queue_.back().stamp.sequence;
}

void Sink::flush() {
    for (Record& record : queue_) {
        if (kept_ != nullptr) {
            kept_->push_back(std::move(record));
            continue;
        }
        line_.clear();
        append_line(line_, record);
        lost_ += write_line() ? 0U : 1U;
    }
    queue_.clear();
}

} // namespace upcie::rm
