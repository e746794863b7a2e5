# A small image in which toolkeep runs as an ordinary user. It is not built in CI: try it before you rely on it.
# deploy/compose.yml and deploy/kubernetes/toolkeep.yml use it; docs/deploy.md explains them.
#
#   docker build -t toolkeep .
#   docker run --rm toolkeep doctor --profile docker > toolkeep-seccomp.json
#   docker run --rm --security-opt seccomp=toolkeep-seccomp.json --security-opt apparmor=unconfined toolkeep doctor
#
# Both flags are needed for the levels standard, strict and restricted:
#   seccomp=FILE         Docker's own filter denies unshare, mount, umount2, pivot_root, setns, open_tree, move_mount,
#                        mount_setattr and sethostname to whoever is not root with CAP_SYS_ADMIN. The profile permits
#                        these, and denies what Docker denies. Workers get a narrower filter of their own.
#   apparmor=unconfined  its profile denies mounts. Without AppArmor on the machine the flag changes nothing. Where the
#                        machine has SELinux instead: --security-opt label=disable
# On Ubuntu from 23.10 on, install the AppArmor profile of `toolkeep doctor --profile apparmor` on the machine, and use
# it for the container: --security-opt apparmor=toolkeep
#
# `toolkeep doctor --attack` needs a /proc of its own, and so one flag more:
#   docker run --rm --security-opt seccomp=toolkeep-seccomp.json --security-opt apparmor=unconfined \
#       --security-opt systempaths=unconfined toolkeep doctor --attack
#
# Not needed: --privileged, --cap-add, root. --cap-drop ALL and --security-opt no-new-privileges change nothing for
# workers. --memory and --pids-limit bound the keep and all its workers together.

FROM python:3.12-slim-bookworm AS build
WORKDIR /build
COPY pyproject.toml README.md LICENSE NOTICE ./
COPY src src
RUN pip wheel --no-cache-dir --wheel-dir /wheels '.[postgres,server]'

FROM python:3.12-slim-bookworm
# There is one version of each among the wheels.
# hadolint ignore=DL3013
RUN --mount=type=bind,from=build,source=/wheels,target=/wheels \
    pip install --no-cache-dir --no-index --find-links /wheels 'toolkeep[postgres,server]'
RUN useradd --uid 10001 --create-home keeper \
    && install --directory --owner keeper --group keeper --mode 0700 /project /state
USER 10001:10001
WORKDIR /project
# Log, keys and what else a server keeps: a volume of its own for each server.
ENV TOOLKEEP_HOME=/state
ENTRYPOINT ["toolkeep"]
CMD ["doctor"]
