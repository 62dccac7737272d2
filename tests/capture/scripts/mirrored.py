"""TensorFlow on two logical CPUs under MirroredStrategy, 16 steps: `mirrored.py fit|loop`."""

import os
import sys
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow as tf

cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
x = np.random.default_rng(0).random((256, 16), "float32")
data = tf.data.Dataset.from_tensor_slices((x, x[:, :1])).batch(16)
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.layers.Dense(32, activation="relu"), tf.keras.layers.Dense(1)])
    optimizer = tf.keras.optimizers.SGD(1e-3)
    model.compile(optimizer, "mse")
if sys.argv[1] == "fit":
    model.fit(data, epochs=1, verbose=0)
else:
    distributed = strategy.experimental_distribute_dataset(data)
    with strategy.scope():
        model.build((None, 16))
        optimizer.build(model.trainable_variables)

    def one(batch: Any) -> Any:
        a, b = batch
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(a, training=True) - b))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    @tf.function
    def step(batch: Any) -> Any:
        return strategy.reduce(tf.distribute.ReduceOp.MEAN, strategy.run(one, args=(batch,)), axis=None)

    for batch in distributed:
        step(batch)
print("finished", flush=True)
