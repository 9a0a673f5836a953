# What a wheel holds beside the Python files, which pyproject.toml names: the C library, the command and its compile worker. All lie in
# the package, from where they find NVRTC in the site-packages folder (runtime/compile/nvrtc_path.cpp). python/fast adds the
# extension.
install(TARGETS kernelwright_c LIBRARY DESTINATION ${KERNELWRIGHT_PYTHON_PACKAGE} COMPONENT python)
install(TARGETS kernelwright_cli kernelwright_cc RUNTIME DESTINATION ${KERNELWRIGHT_PYTHON_PACKAGE}/bin COMPONENT python)
