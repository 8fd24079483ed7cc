#include <Python.h>
#include <c10/core/DeviceType.h>

static double twice(double x) { return x + x; }

static PyObject* of_number(PyObject*, PyObject* number) {
  return PyFloat_FromDouble(twice(PyFloat_AsDouble(number)));
}

static PyObject* device(PyObject*, PyObject*) {
  return PyUnicode_FromString(c10::DeviceTypeName(c10::DeviceType::CPU, true).c_str());
}

static PyMethodDef methods[] = {
  {"twice", of_number, METH_O, ""}, {"device", device, METH_NOARGS, ""}, {nullptr, nullptr, 0, nullptr}
};
static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "twice", "", -1, methods};
PyMODINIT_FUNC PyInit_twice() { return PyModule_Create(&definition); }
