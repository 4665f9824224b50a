#!/bin/sh
# Remove from a folder of packages what no service loads of pyarrow, 64 MB: Flight, other file systems than the local one,
# ORC, headers, sources and tests. An image calls it in the layer that installs the packages.
set -eu
cd "$1/pyarrow"
rm -rf include src tests
rm -f -- *flight* libarrow_s3* ./*_s3fs* ./*_gcsfs* ./*_azurefs* ./*_hdfs* ./*_orc* ./*.pyx ./*.pxi ./*.pxd
