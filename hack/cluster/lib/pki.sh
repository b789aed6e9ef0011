# shellcheck shell=bash disable=SC2154,SC2034 # its names are shared with cluster.sh, which sources it
# Keys, certificates and kubeconfigs of one cluster, for use on this machine only. Sourced by cluster.sh, which sets `state`.

readonly p256='-newkey ec -pkeyopt ec_paramgen_curve:P-256 -noenc'

# issue NAME SUBJECT EXTENSION...: a key, and a certificate for it from the cluster's own authority
issue() {
  local name=$1 subject=$2
  shift 2
  # shellcheck disable=SC2086 # several words
  openssl req -new $p256 -subj "$subject" -keyout "$name.key" -out "$name.csr" &&
    openssl x509 -req -in "$name.csr" -CA ca.crt -CAkey ca.key -days 3650 -out "$name.crt" -extfile <(printf '%s\n' "$@") &&
    rm "$name.csr"
}

# issue_all: joined by && because `set -e` does not reach into a command whose failure the caller looks at
issue_all() {
  local loopback=subjectAltName=IP:127.0.0.1,DNS:localhost
  # shellcheck disable=SC2086 # several words
  openssl req -x509 $p256 -days 3650 -subj /CN=egress-cluster -keyout ca.key -out ca.crt \
    -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign &&
    issue etcd /CN=etcd "$loopback" extendedKeyUsage=serverAuth,clientAuth && # its gateway and its peer port are its own clients
    issue etcd-client /CN=kube-apiserver extendedKeyUsage=clientAuth &&
    issue apiserver /CN=kube-apiserver extendedKeyUsage=serverAuth \
      "$loopback,IP:10.96.0.1,DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc" &&
    issue admin /O=system:masters/CN=admin extendedKeyUsage=clientAuth &&
    issue controller-manager /CN=system:kube-controller-manager extendedKeyUsage=clientAuth &&
    openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out service-account.key &&
    openssl pkey -in service-account.key -pubout -out service-account.pub
}

# Makes all of them in a folder aside and moves it into place, so that a run cut short leaves none or all.
create_pki() {
  [[ ! -d $state/pki ]] || return 0
  rm -rf "$state/pki.new"
  mkdir "$state/pki.new"
  if ! (cd "$state/pki.new" && issue_all) >"$state/log/openssl.log" 2>&1 </dev/null; then
    tail -n 20 "$state/log/openssl.log" >&2
    die "openssl could not make the certificates; its words are above"
  fi
  mv "$state/pki.new" "$state/pki"
}

# write_kubeconfig USER PORT
write_kubeconfig() {
  local user=$1 port=$2 pki=$state/pki
  cat >"$state/$user.kubeconfig.new" <<EOT
apiVersion: v1
kind: Config
current-context: egress-cluster
contexts: [{name: egress-cluster, context: {cluster: egress-cluster, user: $user}}]
clusters:
  - name: egress-cluster
    cluster:
      server: https://127.0.0.1:$port
      certificate-authority-data: $(base64 -w0 <"$pki/ca.crt")
users:
  - name: $user
    user:
      client-certificate-data: $(base64 -w0 <"$pki/$user.crt")
      client-key-data: $(base64 -w0 <"$pki/$user.key")
EOT
  mv "$state/$user.kubeconfig.new" "$state/$user.kubeconfig"
}
