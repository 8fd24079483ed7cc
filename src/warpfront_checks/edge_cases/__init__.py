"""What kernels get wrong in the field, by class: rows of inputs whose right answer is known without
the device, from closed forms, whole numbers that no order of summation rounds, or numpy.
"""
