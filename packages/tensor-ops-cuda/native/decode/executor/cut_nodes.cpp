#include "decode/executor/cut_nodes.h"

#include <algorithm>

#include "decode/ranks/exchange_sizes.h"

namespace tensor_ops::decode {
namespace {

std::size_t most_result_bytes(const Program& program, const DeviceProgram& on_device) {
  std::size_t most = 0;
  for (const Cut& cut : on_device.lowered().cuts)
    most = std::max(most, on_device.rows_of_value(cut.to) * program.values[cut.to].columns);
  return most * sizeof(float);
}

}  // namespace

CutNodes::CutNodes(const Program& program, const DeviceProgram& on_device,
                   std::shared_ptr<Exchange> exchange, cudaStream_t stream)
    : program_(program),
      on_device_(on_device),
      exchange_(std::move(exchange)),
      stream_(stream),
      result_(exchange_ ? std::make_unique<PinnedMemory>(most_result_bytes(program, on_device))
                        : nullptr) {}

void CutNodes::run(const Cut& cut, std::size_t rows) {
  if (rows == 0) return;
  // With one rank it is the result already.
  if (!exchange_) return on_device_.copy(cut.from, cut.to, rows, stream_);
  const Node& node = program_.nodes[cut.node];
  const std::size_t columns = program_.values[cut.from].columns,
                    sent = sent_columns(program_, node, exchange_->world_size());
  const ExchangeBuffers buffers = exchange_->buffers(exchange_->num_done(), rows * sent);
  for (std::size_t row = 0; row < rows; ++row)
    download(on_device_.value(cut.from) + row * columns, buffers.sent + row * sent,
             columns * sizeof(float), stream_);
  exchange_->meet(cut.node, rows, sent);
  if (is_gather(node))
    gather(buffers, cut.to, rows, sent);
  else
    add_up(buffers, rows * columns);
  CUDA_CHECK(cudaMemcpyAsync(on_device_.value(cut.to), result_->at<float>(0),
                             rows * program_.values[cut.to].columns * sizeof(float),
                             cudaMemcpyHostToDevice, stream_));
  CUDA_CHECK(cudaStreamSynchronize(stream_));
}

void CutNodes::add_up(const ExchangeBuffers& buffers, std::size_t count) {
  float* const sum = result_->at<float>(0);
  std::copy_n(buffers.received, count, sum);
  for (std::size_t rank = 1; rank < exchange_->world_size(); ++rank)
    for (std::size_t i = 0; i < count; ++i) sum[i] += buffers.received[rank * buffers.stride + i];
}

void CutNodes::gather(const ExchangeBuffers& buffers, std::size_t value, std::size_t rows,
                      std::size_t sent_columns) {
  const std::size_t columns = program_.values[value].columns, ranks = exchange_->world_size();
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const std::size_t first = columns * rank / ranks, end = columns * (rank + 1) / ranks;
    for (std::size_t row = 0; row < rows; ++row)
      std::copy_n(buffers.received + rank * buffers.stride + row * sent_columns, end - first,
                  result_->at<float>(0) + row * columns + first);
  }
}

}  // namespace tensor_ops::decode
