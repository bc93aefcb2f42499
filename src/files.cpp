#include "src/files.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "reference/check.hpp"

namespace quads {
namespace {

bool write_all(int file, const std::string& bytes) {
    std::size_t done = 0;
    while (done < bytes.size()) {
        const ssize_t written = write(file, bytes.data() + done, bytes.size() - done);
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) return false;
        done += static_cast<std::size_t>(written);
    }
    return true;
}

}  // namespace

std::string read_file(const std::string& path) {
    check(!std::filesystem::is_directory(path), path, " is a folder, expected a file.");
    std::ifstream file(path, std::ios::binary);
    check(file.good(), "cannot read ", path, ": ", std::strerror(errno), ".");
    std::ostringstream bytes;
    bytes << file.rdbuf();
    check(!file.bad(), "reading ", path, " failed half way; check the disk.");
    return bytes.str();
}

void create_parent_folder(const std::string& path) {
    const std::filesystem::path folder = std::filesystem::path(path).parent_path();
    if (folder.empty()) return;
    std::error_code error;
    std::filesystem::create_directories(folder, error);
    check(!error, "cannot create the folder ", folder.string(), ": ", error.message(), ".");
}

void write_file_atomically(const std::string& path, const std::string& bytes) {
    const std::string temporary = path + ".tmp";
    const int file = open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    check(file >= 0, "cannot write ", path, ": ", std::strerror(errno), "; check that the folder exists and is yours.");
    bool done = write_all(file, bytes) && fsync(file) == 0;
    int reason = errno;
    close(file);
    if (done && std::rename(temporary.c_str(), path.c_str()) != 0) {
        done = false;
        reason = errno;
    }
    if (!done) {
        unlink(temporary.c_str());
        fail("cannot write ", path, ": ", std::strerror(reason), "; what was there before is unchanged.");
    }
    // The rename itself reaches the disk with its folder. Some file systems refuse to sync a folder: not an error.
    const std::string folder = std::filesystem::path(path).parent_path().string();
    const int handle = open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_CLOEXEC);
    if (handle >= 0) {
        fsync(handle);
        close(handle);
    }
}

}  // namespace quads
