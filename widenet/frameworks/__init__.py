"""Networks of deep-learning frameworks: ONNX, written, Keras and Caffe, read."""
