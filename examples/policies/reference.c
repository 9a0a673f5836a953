/* What the policies of this folder are held to, written anew: `kernelwright run` calls it for each score, from many
 * threads. cc -shared -fPIC -o reference.so reference.c */

static int diagonal(int query, int q_len, int kv_len) { return query + kv_len - q_len; }

int prefix_lm(int query, int key, int head, int batch, int q_len, int kv_len) {
  (void)head, (void)batch;
  return key < 24 || key <= diagonal(query, q_len, kv_len);
}

double relative_bias(double score, int query, int key, int head, int batch, int q_len, int kv_len) {
  static const double below[2][8] = {{0.5, 0.25, 0.125, 0, -0.25, -0.5, -1, -2},
                                     {1, 0.5, 0, -0.5, -0.75, -1, -1.25, -1.5}};
  static const double above[2][8] = {{0, 0.75, 0.5, 0.25, 0, -0.5, -1.5, -3},
                                     {0, 0.25, -0.25, -0.5, -1, -1.25, -2, -2.5}};
  const int distance = key - diagonal(query, q_len, kv_len);
  const int far = distance < 0 ? -distance : distance;
  int bucket = far;
  if (far >= 4) bucket = 4;
  if (far >= 8) bucket = 5;
  if (far >= 16) bucket = 6;
  if (far >= 32) bucket = 7;
  (void)batch;
  return score + (distance > 0 ? above : below)[head % 2][bucket];
}
