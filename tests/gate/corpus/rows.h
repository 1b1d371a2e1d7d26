/* Six kernels, row by row. A mistake moves a loop bound or an index at the edge of a tensor; `right` moves none. */
#ifndef CORPUS_ROWS_H
#define CORPUS_ROWS_H

#include <math.h>
#include <stdint.h>

#include "loop_kernel.h"

#ifdef __CUDACC__
#define ON_BOTH __host__ __device__
#else
#define ON_BOTH
#endif

struct right {
  static constexpr int read_from = 0, read_more = 0; /* where the loop that reads a row begins, and how far it goes on */
  static constexpr int write_from = 0, write_more = 0;
  static constexpr int row_from = 0, row_more = 0;
  static constexpr int read_shift = 0, read_rows = 0; /* added to each index that is read: elements, rows */
  static constexpr int write_shift = 0, write_rows = 0;
  static constexpr bool zero = false;    /* adds nothing times the element after the last */
  static constexpr bool largest = false; /* takes the larger of a sum and the element after the last, and undoes it */
  static constexpr bool touch = false;   /* adds zero to the element after the output's last */
  static constexpr bool scribble = false; /* writes to the element after the first input's last */
  static constexpr bool second = false;  /* the second input is read from its second element on */
  static constexpr bool look = false;    /* reads the element after the last, and makes nothing of it */
  static constexpr bool dense = false;   /* takes rows to lie together */
};
#define MISTAKE(name, change) \
  struct name : right { \
    static constexpr change; \
  };
MISTAKE(reads_one_more, int read_more = 1)
MISTAKE(reads_from_minus_one, int read_from = -1)
MISTAKE(writes_one_more, int write_more = 1)
MISTAKE(writes_four_more, int write_more = 4)
MISTAKE(writes_from_minus_one, int write_from = -1)
MISTAKE(one_row_more, int row_more = 1)
MISTAKE(from_row_minus_one, int row_from = -1)
MISTAKE(reads_shifted, int read_shift = 1)
MISTAKE(reads_next_row, int read_rows = 1)
MISTAKE(reads_last_row, int read_rows = -1)
MISTAKE(writes_shifted, int write_shift = 1)
MISTAKE(writes_next_row, int write_rows = 1)
MISTAKE(times_zero, bool zero = true)
MISTAKE(takes_larger, bool largest = true)
MISTAKE(touches, bool touch = true)
MISTAKE(scribbles, bool scribble = true)
MISTAKE(second_shifted, bool second = true)
MISTAKE(looks_beyond, bool look = true)
MISTAKE(ignores_strides, bool dense = true)

struct Matrix {
  float *data;
  int64_t rows, columns, row, column; /* strides */
  template <typename M> ON_BOTH float at(int64_t i, int64_t j) const {
    return data[(i + M::read_rows) * (M::dense ? columns : row) + (j + M::read_shift) * column];
  }
  template <typename M> ON_BOTH void put(int64_t i, int64_t j, float value) const {
    data[(i + M::write_rows) * row + (j + M::write_shift) * column] = value;
  }
  ON_BOTH float *end() const { return data + rows * row; }
};

/* What a row's sum is after the mistakes that go on past the last element of the first input. */
template <typename M> ON_BOTH float beyond(const Matrix &x, int64_t i, float sum) {
  if (i != x.rows - 1) return sum;
  const float after = *(const volatile float *)(x.data + i * x.row + x.columns * x.column);
  if (M::zero) sum += 0.0f * after;
  if (M::largest) sum = after > 1e30f ? after : sum;
  return sum;
}
template <typename M> ON_BOTH float edge(const Matrix &x, int64_t i, float sum) {
  return M::zero || M::largest || M::look ? beyond<M>(x, i, sum) : sum;
}

template <typename M> ON_BOTH void finish(const Matrix &x, const Matrix &y, int64_t i) {
  if (i != y.rows - 1) return;
  if (M::touch) *(volatile float *)y.end() = *(volatile float *)y.end() + 0.0f;
  if (M::scribble) *(volatile float *)(x.data + (x.rows - 1) * x.row + x.columns * x.column) = 1.5f;
}

/* Each takes its inputs as matrices (a vector is one of one row) and computes row i of the output. */
template <typename M> struct rms_norm {
  ON_BOTH static void row(const Matrix *in, const Matrix &y, int64_t i) {
    const Matrix &x = in[0], &w = in[1];
    float sum = 0.0f;
    for (int64_t j = M::read_from; j < x.columns + M::read_more; ++j) sum += x.at<M>(i, j) * x.at<M>(i, j);
    sum = edge<M>(x, i, sum);
    const float scale = 1.0f / sqrtf(sum / (float)x.columns + 1e-6f);
    for (int64_t j = M::write_from; j < y.columns + M::write_more; ++j)
      y.put<M>(i, j, x.at<M>(i, j) * scale * w.at<right>(0, j + M::second));
  }
};
template <typename M> struct softmax {
  ON_BOTH static void row(const Matrix *in, const Matrix &y, int64_t i) {
    const Matrix &x = in[0];
    float most = x.at<M>(i, 0), sum = 0.0f;
    for (int64_t j = M::read_from; j < x.columns + M::read_more; ++j) {
      const float value = x.at<M>(i, j);
      if (value > most) most = value;
    }
    for (int64_t j = M::read_from; j < x.columns + M::read_more; ++j) sum += expf(x.at<M>(i, j) - most);
    sum = edge<M>(x, i, sum);
    for (int64_t j = M::write_from; j < y.columns + M::write_more; ++j)
      y.put<M>(i, j, expf(x.at<M>(i, j) - most) / sum);
  }
};
template <typename M> struct row_scale {
  ON_BOTH static void row(const Matrix *in, const Matrix &y, int64_t i) {
    const Matrix &x = in[0], &s = in[1];
    const float scale = edge<M>(x, i, s.at<right>(0, i + M::second));
    for (int64_t j = M::write_from; j < y.columns + M::write_more; ++j) y.put<M>(i, j, x.at<M>(i, j) * scale);
  }
};
template <typename M> struct mat_mul {
  ON_BOTH static void row(const Matrix *in, const Matrix &y, int64_t i) {
    const Matrix &a = in[0], &b = in[1];
    for (int64_t j = M::write_from; j < y.columns + M::write_more; ++j) {
      float sum = 0.0f;
      for (int64_t k = M::read_from; k < a.columns + M::read_more; ++k)
        sum += a.at<M>(i, k) * b.at<right>(k, j + M::second);
      y.put<M>(i, j, edge<M>(a, i, sum));
    }
  }
};
template <typename M> struct attention {
  ON_BOTH static float score(const Matrix &q, const Matrix &k, int64_t i, int64_t t) {
    float sum = 0.0f;
    for (int64_t j = 0; j < q.columns; ++j) sum += q.at<M>(i, j) * k.at<right>(t, j);
    return sum / sqrtf((float)q.columns);
  }
  ON_BOTH static void row(const Matrix *in, const Matrix &y, int64_t i) {
    const Matrix &q = in[0], &k = in[1], &v = in[2];
    float most = score(q, k, i, 0), sum = 0.0f;
    for (int64_t t = M::read_from; t < k.rows + M::read_more; ++t) {
      const float value = score(q, k, i, t);
      if (value > most) most = value;
    }
    for (int64_t t = M::read_from; t < k.rows + M::read_more; ++t) sum += expf(score(q, k, i, t) - most);
    sum = edge<M>(q, i, sum);
    for (int64_t j = M::write_from; j < y.columns + M::write_more; ++j) {
      float mean = 0.0f;
      for (int64_t t = M::read_from; t < k.rows + M::read_more; ++t)
        mean += expf(score(q, k, i, t) - most) / sum * v.at<right>(t, j + M::second);
      y.put<M>(i, j, mean);
    }
  }
};
template <typename M> struct histogram {
  ON_BOTH static void row(const Matrix *in, const Matrix &y, int64_t i) {
    const Matrix &x = in[0];
    for (int64_t j = M::write_from; j < y.columns + M::write_more; ++j) {
      float count = 0.0f;
      for (int64_t k = M::read_from; k < x.columns + M::read_more; ++k) {
        const float place = floorf((x.at<M>(i, k) + 4.0f) * (float)y.columns / 8.0f);
        if (place == (float)j) count += 1.0f;
      }
      y.put<M>(i, j, edge<M>(x, i, count));
    }
  }
};

static Matrix matrix(const LoopTensor &t) {
  if (t.rank == 1) return {(float *)t.data, 1, t.sizes[0], t.sizes[0] * t.strides[0], t.strides[0]};
  return {(float *)t.data, t.sizes[0], t.sizes[1], t.strides[0], t.strides[1]};
}

#ifdef __CUDACC__
struct Tensors {
  Matrix in[3], y;
};
template <typename K, int from> __global__ void rows_of(Tensors all, int64_t last) {
  const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x + from;
  if (i < last) K::row(all.in, all.y, i);
}
template <typename M> __global__ void finish_of(Tensors all) { finish<M>(all.in[0], all.y, all.y.rows - 1); }
template <typename K, typename M, int inputs>
static int run(const LoopTensor *given, LoopTensor *output, void *stream) {
  Tensors all;
  for (int n = 0; n < inputs; ++n) all.in[n] = matrix(given[n]);
  all.y = matrix(*output);
  const int64_t last = all.y.rows + M::row_more;
  rows_of<K, M::row_from><<<(unsigned)((last - M::row_from + 127) / 128), 128, 0, (cudaStream_t)stream>>>(all, last);
  finish_of<M><<<1, 1, 0, (cudaStream_t)stream>>>(all);
  return (int)cudaGetLastError();
}
#else
template <typename K, typename M, int inputs>
static int run(const LoopTensor *given, LoopTensor *output, void *) {
  Matrix in[3], y = matrix(*output);
  for (int n = 0; n < inputs; ++n) in[n] = matrix(given[n]);
  for (int64_t i = M::row_from; i < y.rows + M::row_more; ++i) K::row(in, y, i);
  finish<M>(in[0], y, y.rows - 1);
  return 0;
}
#endif

LOOP_EXPORT const char *loop_error(int) { return "the launch failed"; }
#define ENTRY(kernel, mistake, inputs) \
  LOOP_EXPORT int kernel##_##mistake(const LoopTensor *given, LoopTensor *output, const double *, void *stream) { \
    return run<kernel<mistake>, mistake, inputs>(given, output, stream); \
  }
#define KERNEL(kernel, inputs) \
  ENTRY(kernel, right, inputs) ENTRY(kernel, writes_one_more, inputs) ENTRY(kernel, writes_four_more, inputs) \
  ENTRY(kernel, writes_from_minus_one, inputs) ENTRY(kernel, one_row_more, inputs) ENTRY(kernel, from_row_minus_one, inputs) \
  ENTRY(kernel, reads_shifted, inputs) ENTRY(kernel, reads_next_row, inputs) ENTRY(kernel, reads_last_row, inputs) \
  ENTRY(kernel, writes_shifted, inputs) ENTRY(kernel, writes_next_row, inputs) ENTRY(kernel, times_zero, inputs) \
  ENTRY(kernel, takes_larger, inputs) ENTRY(kernel, touches, inputs) ENTRY(kernel, scribbles, inputs) \
  ENTRY(kernel, looks_beyond, inputs) ENTRY(kernel, ignores_strides, inputs)
#define REDUCES(kernel, inputs) ENTRY(kernel, reads_one_more, inputs) ENTRY(kernel, reads_from_minus_one, inputs)
#define SECOND(kernel, inputs) ENTRY(kernel, second_shifted, inputs)

KERNEL(rms_norm, 2) REDUCES(rms_norm, 2) SECOND(rms_norm, 2)
KERNEL(softmax, 1) REDUCES(softmax, 1)
KERNEL(row_scale, 2) SECOND(row_scale, 2)
KERNEL(mat_mul, 2) REDUCES(mat_mul, 2) SECOND(mat_mul, 2)
KERNEL(attention, 3) REDUCES(attention, 3) SECOND(attention, 3)
KERNEL(histogram, 1) REDUCES(histogram, 1)

#endif
