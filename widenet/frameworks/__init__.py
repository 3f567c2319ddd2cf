"""Networks of deep-learning frameworks: ONNX, read and written, Keras and Caffe, read."""
