// SPDX-License-Identifier: BSD-3-Clause
#include <cerrno>
#include <cstdio>
#include <filesystem>

#include <fcntl.h>
#include <unistd.h>

#include <upcie/os/fd.hpp>
#include <upcie/os/sysfs.hpp>

#include "machine_report.hpp"
#include "report_page.hpp"

// Writing a report's two files, each whole or not at all.
namespace upcie::cli {

namespace {

constexpr const char* document_name = "report.json";
constexpr const char* page_name = "report.md";

/// A file beside the one that is to be written, gone unless it took its place.
class Draft {
  public:
    Draft(os::System& system, const std::string& folder, const std::string& name)
        : system_{system}, target_{folder + "/" + name}, path_{fmt::format("{}/.{}.{}", folder, name, ::getpid())} {}
    Draft(const Draft&) = delete;
    Draft& operator=(const Draft&) = delete;
    ~Draft() {
        if (made_) {
            static_cast<void>(system_.unlink(path_.c_str()));
        }
    }

    Result<void> write(std::string_view text) {
        constexpr mode_t readable_by_all = 0644;
        static_cast<void>(system_.unlink(path_.c_str())); // of a process of this number that was killed
        const os::Fd file{system_,
                          system_.open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, readable_by_all)};
        if (!file) {
            return failed("create");
        }
        made_ = true;
        while (!text.empty()) {
            const ssize_t put = system_.write(file.get(), text.data(), text.size());
            if (put < 0 && errno == EINTR) {
                continue;
            }
            if (put < 0) {
                return failed("write");
            }
            text.remove_prefix(static_cast<std::size_t>(put));
        }
        // What does not fit is told by some file systems only here.
        return ::fsync(file.get()) == 0 || errno == EINVAL ? Result<void>{} : failed("fsync");
    }
    Result<void> take_place() {
        if (std::rename(path_.c_str(), target_.c_str()) != 0) {
            return failed("rename");
        }
        made_ = false;
        return {};
    }

  private:
    [[nodiscard]] tl::unexpected<Error> failed(const char* operation) const {
        const int code = errno;
        const bool no_room = code == ENOSPC || code == EDQUOT || code == EFBIG;
        return fail(code, operation, target_,
                    no_room ? "Make room there, or name another folder with --out: what was there is as it was."
                            : "Name a folder that this user may write to with --out.");
    }

    os::System& system_;
    std::string target_;
    std::string path_;
    bool made_ = false;
};

} // namespace

Result<void> prepare_report_folder(os::System& system, const std::string& folder) {
    const char* const give = "Name a folder that this user may make or write to with --out.";
    std::error_code problem;
    std::filesystem::create_directories(folder, problem);
    if (problem) {
        return fail(problem.value(), "mkdir", folder, give);
    }
    if (system.access(folder.c_str(), W_OK | X_OK) != 0) {
        const int code = errno;
        return fail(code, "write access", folder, give);
    }
    const auto occupied = [](const std::string& path) {
        return fail(EEXIST, "write a report", path,
                    "It is no report's file, and is left alone: name another folder with --out, or move it away.");
    };
    const std::string document = folder + "/" + document_name;
    if (os::exists(system, document)) {
        const auto before = load_machine_report(system, document);
        if (!before && !before.error().is(ENOTSUP)) {
            return occupied(document);
        }
    }
    const std::string page = folder + "/" + page_name;
    if (os::exists(system, page)) {
        constexpr std::size_t largest_page = std::size_t{64} << 20;
        const auto before = os::read_text(system, page, largest_page);
        if (!before || before->rfind(page_mark, 0) != 0) {
            return occupied(page);
        }
    }
    return {};
}

Result<void> write_report(os::System& system, const std::string& folder, const MachineReport& report) {
    if (auto ready = prepare_report_folder(system, folder); !ready) {
        return ready;
    }
    Draft document{system, folder, document_name};
    Draft page{system, folder, page_name};
    // Both are written before either takes its place: the disk that is full for one is so for both.
    auto done = document.write(report.json().dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
    if (done) {
        done = page.write(render_page(report));
    }
    if (done) {
        done = document.take_place();
    }
    if (done) {
        done = page.take_place();
    }
    return done;
}

} // namespace upcie::cli
