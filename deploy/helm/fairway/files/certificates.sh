# SPDX-License-Identifier: Apache-2.0
# certificates.sh ROLE NAME: copies a daemon's certificate NAME.pem with its key, and the CA, to where the daemon reads
# them, for its user alone; and does so again when the Secret changes. The daemon looks at its files once a second.
set -eu
umask 077
role=$1 name=$2 from=/secrets to=/run/fairway/tls last=
trap 'exit 0' TERM INT
mkdir -p "$to/next"
if [ ! -e "$from/$name.pem" ]; then
  echo "certificates: the Secret has no $name.pem; the Job of tls.mode init adds it at an upgrade or rollback of the release, else whoever makes the Secret" >&2
  exit 1
fi
while :; do
  # The key is in the certificate's file, too, so that one step replaces both.
  cat "$from/$name.pem" "$from/$name.key" >"$to/next/$role.pem"
  cat "$from/$name.key" >"$to/next/$role.key"
  cat "$from/ca.pem" >"$to/next/ca.pem"
  if [ -f "$from/ca.key" ]; then cat "$from/ca.key" >"$to/next/ca.key"; fi
  # Between two looks a worker may have renewed its certificate itself. So the Secret is compared with what it was.
  now=$(cat "$to"/next/* | sha256sum)
  if [ "$now" != "$last" ]; then
    for file in ca.key ca.pem "$role.key" "$role.pem"; do  # the last one is what the pod's start waits for
      if [ -f "$to/next/$file" ]; then mv "$to/next/$file" "$to/$file"; fi
    done
    last=$now
    echo "certificates: copied $name"
  fi
  sleep 10 &
  wait $!
done
