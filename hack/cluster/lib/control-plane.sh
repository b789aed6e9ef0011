# shellcheck shell=bash disable=SC2154,SC2034 # its names are shared with cluster.sh, which sources it
# The three processes: their flags, ports, order and signs of life. Sourced by cluster.sh, which sets `state`,
# `programs_dir`, `components` and `start_timeout`; does not know where the programs come from.

in_use() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# Below the range from which the kernel gives ports to those that ask for any, so that only another cluster or a fixed
# service can be in the way.
free_port() {
  local port
  for _ in {1..100}; do
    port=$((20000 + SRANDOM % 12000))
    in_use "$port" || { echo "$port"; return; }
  done
  die "found no free port"
}

# Sets api_port and etcd_port. Those kept in the folder hold as long as a process of it may use them or nobody else does.
choose_ports() {
  if [[ -s $state/ports ]]; then
    read -r api_port etcd_port <"$state/ports"
    if ! all_stopped "${components[@]}"; then return; fi
    if ! in_use "$api_port" && ! in_use "$etcd_port"; then return; fi
    say "another process has port $api_port or $etcd_port by now: taking new ones"
  fi
  api_port=${CLUSTER_API_PORT:-$(free_port)}
  etcd_port=${CLUSTER_ETCD_PORT:-$(free_port)}
  echo "$api_port $etcd_port" >"$state/ports"
}

# launch NAME FLAG...: starts a program of that name and remembers to stop it if this run fails
launch() {
  local name=$1
  shift
  running "$name" && return
  started+=("$name")
  start_process "$name" "$state/bin/$name" "$@"
}

start_etcd() {
  local pki=$state/pki url=https://127.0.0.1:$etcd_port
  launch etcd --name=etcd --data-dir="$state/etcd" --log-level=warn --unsafe-no-fsync \
    --listen-client-urls="$url" --advertise-client-urls="$url" \
    --client-cert-auth --trusted-ca-file="$pki/ca.crt" --cert-file="$pki/etcd.crt" --key-file="$pki/etcd.key" \
    --listen-peer-urls=https://127.0.0.1:0 --initial-advertise-peer-urls=https://127.0.0.1:1 --initial-cluster=etcd=https://127.0.0.1:1 \
    --peer-client-cert-auth --peer-trusted-ca-file="$pki/ca.crt" --peer-cert-file="$pki/etcd.crt" --peer-key-file="$pki/etcd.key"
}

start_apiserver() {
  local pki=$state/pki extra
  read -r api_port etcd_port <"$state/ports"
  read -ra extra <"$state/apiserver-flags"
  launch kube-apiserver --bind-address=127.0.0.1 --advertise-address=127.0.0.1 --secure-port="$api_port" \
    --etcd-servers="https://127.0.0.1:$etcd_port" --etcd-cafile="$pki/ca.crt" \
    --etcd-certfile="$pki/etcd-client.crt" --etcd-keyfile="$pki/etcd-client.key" \
    --tls-cert-file="$pki/apiserver.crt" --tls-private-key-file="$pki/apiserver.key" --client-ca-file="$pki/ca.crt" \
    --authorization-mode=RBAC --service-cluster-ip-range=10.96.0.0/16 --endpoint-reconciler-type=none \
    --service-account-issuer=https://kubernetes.default.svc --service-account-key-file="$pki/service-account.pub" \
    --service-account-signing-key-file="$pki/service-account.key" "${extra[@]}"
}

start_controller_manager() {
  local pki=$state/pki
  launch kube-controller-manager --kubeconfig="$state/controller-manager.kubeconfig" --bind-address=127.0.0.1 --secure-port=0 \
    --leader-elect=false --use-service-account-credentials --root-ca-file="$pki/ca.crt" \
    --service-account-private-key-file="$pki/service-account.key" --kube-api-qps=100 --kube-api-burst=200
}

# api_get PATH: asks the API server as its administrator
api_get() {
  local pki=$state/pki
  curl --silent --fail --max-time 5 --noproxy '*' --cacert "$pki/ca.crt" --cert "$pki/admin.crt" --key "$pki/admin.key" \
    "https://127.0.0.1:$api_port$1" >/dev/null 2>&1
}

# answers PATH NAME...: succeeds when the API server gives PATH; ends the wait when one of the processes has ended
answers_or_ended() {
  local path=$1 name
  shift
  ! api_get "$path" || return 0
  for name in "$@"; do
    running "$name" || { ended=$name && return 0; }
  done
  return 1
}

# wait_for PATH NAME...: until the API server gives PATH; fails, with the end of a log, when a process ends or time is up
wait_for() {
  local ended='' path=$1 name
  shift
  if wait_until "$start_timeout" answers_or_ended "$path" "$@" && [[ -z $ended ]]; then return; fi
  for name in ${ended:-"$@"}; do
    say "the last lines of $state/log/$name.log:"
    tail -n 15 "$state/log/$name.log" >&2
  done
  if [[ -n $ended ]]; then say "$ended ended while it was starting"; else say "no answer to $path after $start_timeout s"; fi
  return 1
}

wait_ready() { wait_for /readyz etcd kube-apiserver; }

# Somebody else can take a free port before it is bound. That is no failure as long as the port was our choice.
lost_a_port() {
  [[ -z ${CLUSTER_API_PORT:-}${CLUSTER_ETCD_PORT:-} ]] && grep -qs 'address already in use' "$state"/log/{etcd,kube-apiserver}.log
}

start_all() {
  create_pki
  ln -sfn "$programs_dir" "$state/bin"
  [[ -f $state/apiserver-flags && -z ${CLUSTER_APISERVER_FLAGS+set} ]] || echo "${CLUSTER_APISERVER_FLAGS:-}" >"$state/apiserver-flags"
  local attempt
  for attempt in 1 2 3; do
    choose_ports
    write_kubeconfig admin "$api_port"
    write_kubeconfig controller-manager "$api_port"
    start_etcd
    start_apiserver
    if wait_ready; then break; fi
    if ((attempt == 3)) || ! lost_a_port; then die "the API server did not come up"; fi
    say "a port was taken in the meantime: trying others"
    stop_processes 10 kube-apiserver etcd
    rm -f "$state/ports" "$state"/log/{etcd,kube-apiserver}.log
  done
  start_controller_manager
  # made by one of its controllers, and so its sign of life
  wait_for /api/v1/namespaces/default/serviceaccounts/default kube-controller-manager || die "the controller manager did not come up"
}

# Told to end, the API server stops listening and finishes requests at once, but keeps open watches for a minute. Those
# who watch are to see the end of it, so it gets little time.
stop_apiserver() { stop_processes 2 "$@" kube-apiserver; }

# etcd last: the API server finishes what it writes. The watch over the owner may be the process that runs this.
stop_all() {
  [[ $(process_id owner-watch) == "$$" ]] || stop_processes 5 owner-watch
  stop_apiserver kube-controller-manager
  stop_processes 10 etcd
}
