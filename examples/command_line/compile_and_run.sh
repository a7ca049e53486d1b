#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Compiles a model once and runs the result at two shapes: compile_and_run.sh MODEL.onnx INPUT SHAPE SHAPE
set -euo pipefail
model=$1 input=$2 first=$3 second=$4
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

relaxvm --version
relaxvm compile "$model" --output "$folder/model.so"
relaxvm inspect "$folder/model.so"
relaxvm run "$folder/model.so" --shape "$input=$first"
relaxvm run "$folder/model.so" --shape "$input=$second" --output "$folder/outputs.npz" --json
