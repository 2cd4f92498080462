#!/usr/bin/env bash
# Installs the Debian packages that some tests use, as root on Debian; elsewhere those tests skip by name.
set -uo pipefail
missing=()
/usr/bin/python3 -c 'import torch' 2>/dev/null || missing+=(python3-torch)
command -v slirp4netns >/dev/null || missing+=(slirp4netns)
[ ${#missing[@]} = 0 ] && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  echo "installing ${missing[*]}" >&2
  { apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}"; } \
    >/dev/null 2>&1 || echo "could not install ${missing[*]}: the tests that use them skip" >&2
else
  echo "not installed: ${missing[*]}: the tests that use them skip" >&2
fi
