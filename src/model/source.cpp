#include "model/source.h"

#include <algorithm>

#include "model/gguf_source.h"
#include "model/hf_source.h"

namespace longtune {

const SourceTensor* ModelSource::find(const std::string& name) const {
  const std::vector<SourceTensor>& all = tensors();
  const auto found = std::lower_bound(
      all.begin(), all.end(), name, [](const SourceTensor& tensor, const std::string& wanted) {
        return tensor.name < wanted;
      });
  return found == all.end() || found->name != name ? nullptr : &*found;
}

std::unique_ptr<ModelSource> open_model(const std::filesystem::path& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    return open_hf_model(path);
  }
  return open_gguf_model(path);
}

}  // namespace longtune
