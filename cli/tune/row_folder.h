/// Folders of tuned rows that machines have written.
#pragma once

#include <string>
#include <vector>

#include "kernelwright/generator/tuned/row.h"

namespace kernelwright::cli {

/// Every row below a folder, DIR/<arch>/NAME.json, in the order of their paths. Throws ConfigError, with the file's
/// path in front, for a file that is no row.
std::vector<AnyTunedRow> read_row_folder(const std::string& folder);

}  // namespace kernelwright::cli
