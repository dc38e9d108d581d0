#!/bin/sh
# Makes what the servers of compose.yaml need so that nothing crosses the network in clear: a CA, a certificate for each server, and
# a token for the relay's API. It runs once before them, without a network, and again when the certificates have a month left.
#
#   prepare.sh DIRECTORY   with the folders postgres, rabbitmq, relay and shop in it, a volume each: nobody sees the others' keys
set -eu
umask 077
cd "$1"

# The relay's copy of the CA is written last: one that is there was the end of a whole run.
if openssl x509 -in relay/ca.pem -noout -checkend 2592000 >/dev/null 2>&1; then
  exit 0
fi

# The CA's key goes with this run: nobody can sign with it later. -nodes: the servers start by themselves.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cat >"$work/openssl.cnf" <<END
[req]
distinguished_name = name
x509_extensions = ca
[name]
[ca]
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign
subjectKeyIdentifier = hash
END
new_key="-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -config $work/openssl.cnf"
openssl req -x509 $new_key -days 365 -subj "/CN=cdc-relay compose" -keyout "$work/ca.key" -out "$work/ca.pem" 2>/dev/null

for server in postgres rabbitmq; do
  openssl req -new $new_key -subj "/CN=$server" -keyout "$server/server.key" -out "$work/$server.csr" 2>/dev/null
  # localhost too, for those who come by a published port.
  printf 'subjectAltName = DNS:%s, DNS:localhost, IP:127.0.0.1\nextendedKeyUsage = serverAuth\n' "$server" >"$work/$server.ext"
  openssl x509 -req -in "$work/$server.csr" -CA "$work/ca.pem" -CAkey "$work/ca.key" -set_serial "0x$(openssl rand -hex 8)" -days 365 \
    -extfile "$work/$server.ext" -out "$server/server.pem" 2>/dev/null
  cp "$work/ca.pem" "$server/ca.pem"
done
openssl rand -hex 32 >relay/operate-token
cp "$work/ca.pem" shop/ca.pem
cp "$work/ca.pem" relay/ca.pem.new

# The users of the images: PostgreSQL's and RabbitMQ's are both 999. Only root may give files away.
if [ "$(id -u)" = 0 ]; then
  chown 999:999 postgres/* rabbitmq/*
  chown 65532:65532 relay/* shop/*
fi
mv relay/ca.pem.new relay/ca.pem
