"""Known weaknesses of kernels, by class: rows of inputs whose expected result is known without
the device. It follows from closed forms, from integers that no order of summation rounds,
or from numpy.
"""
