# What a wheel holds beside the Python files, which pyproject.toml names: the C library and the command. Both lie in the
# package, from where they find NVRTC in the site-packages folder (runtime/compile/nvrtc_path.cpp). python/fast adds the
# extension.
install(TARGETS kernelwright_c LIBRARY DESTINATION ${KERNELWRIGHT_PYTHON_PACKAGE} COMPONENT python)
install(TARGETS kernelwright_cli RUNTIME DESTINATION ${KERNELWRIGHT_PYTHON_PACKAGE}/bin COMPONENT python)
