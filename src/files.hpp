// Whole files. Linux and macOS (POSIX).
#pragma once

#include <string>
#include <vector>

namespace quads {

// The bytes of a file; Error where it is missing, a folder or unreadable.
std::string read_file(const std::string& path);

// Replaces a file at one instant: writes path + ".tmp" in the same folder, flushes it to the disk and renames it. A
// reader sees the old bytes or the new ones; a full disk, a missing folder or a kill leave the old file as it was.
void write_file_atomically(const std::string& path, const std::string& bytes);

// Creates the folder that `path` lies in, and its parents; Error where that is impossible.
void create_parent_folder(const std::string& path);

}  // namespace quads
